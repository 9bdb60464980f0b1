// The order of parameters in the flat buffer.
//
// The backward pass finishes the gradients of the last layers first. The slots lie in that order,
// so the first bucket of the buffer is complete first, and its exchange overlaps the rest of the
// backward pass.
//
//   [ trained: last layer ... first layer ][ running statistics ][ frozen ]   flat buffer
//   [ block ][ block          ][ block    ][ block              ][ block  ]
//   [ b0    ][ b1 ][ b2 ][ b3 ][ b4       ][ b5                 ][ b6     ]   buckets
//
// The buffer is cut twice. A block is a run of whole parameters: it is closed before a parameter
// that would not fit into its last bucket, so a parameter larger than a bucket has a block of
// several buckets (b1 to b3 above). ZeRO stage 3 gathers whole blocks, because an op needs whole
// parameters. A bucket is the unit of exchange; its parts are what ranks own
// (collectives/layout/sharding.h).
//
// What the last op of the backward pass completes is exchanged when nothing is left to hide it: an
// embedding's table, or a bucket of which most parameters were ready long before. So the last
// buckets may be made shorter and shorter: the last exchange is short, and its bucket waits for few
// parameters.
//
// Blocks are padded to multiples of slices() * kSliceAlignment and slots begin at multiples of
// kSliceAlignment. So slices never depend on the number of ranks, and bits do not either. The
// layout depends on the graph, the lanes and the bucket size only.
//
// Rows of zeros after a head's weight (graph/ops/padded_head.h) belong to its slot: ops read and
// write them, buckets carry them, and optimizers keep them 0. Files, hashes and norms see only the
// slot's elements.
#include "runtime/plan/layout.h"

#include "runtime/plan/adafactor_layout.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/base/error.h"

namespace lockstep::plan {
namespace {

std::vector<int> last_writers(const graph::Graph& graph) {
  std::vector<int> writer(graph.tensors.size(), -1);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (TensorId id : graph.ops[i].outputs) {
      if (id != kNoTensor) writer[static_cast<size_t>(id)] = static_cast<int>(i);
    }
  }
  return writer;
}

// The sort key of a parameter in the flat buffer.
struct SortKey {
  enum Region { kTrained, kStatistics, kFrozen } region = kTrained;
  int order = 0;  // within the region
  auto operator<=>(const SortKey&) const = default;
};

int finished_after(const graph::Graph& graph, const std::vector<int>& writer, size_t parameter) {
  const TensorId gradient = graph[graph.parameters[parameter]].gradient;
  LOCKSTEP_CHECK(
      gradient != kNoTensor, "{} has no gradient ", graph[graph.parameters[parameter]].name);
  return writer[static_cast<size_t>(gradient)];
}

// Frozen parameters are ordered like the others, those of the last layers first.
std::vector<SortKey> sort_keys(const graph::Graph& training) {
  const std::vector<int> writer = last_writers(training);
  std::vector<int> first_reader(training.tensors.size(), 0);
  for (size_t i = training.forward_ops; i-- > 0;) {
    for (TensorId id : training.ops[i].inputs) {
      if (id != kNoTensor) first_reader[static_cast<size_t>(id)] = static_cast<int>(i);
    }
  }
  std::vector<SortKey> keys;
  for (size_t i = 0; i < training.parameters.size(); ++i) {
    const TensorId id = training.parameters[i];
    if (training[id].frozen) {
      keys.push_back({SortKey::kFrozen, -first_reader[static_cast<size_t>(id)]});
    } else {
      keys.push_back({training[id].running_momentum > 0 ? SortKey::kStatistics : SortKey::kTrained,
                      finished_after(training, writer, i)});
    }
  }
  return keys;
}

// Where buckets end. Those of the first `trained` elements may become shorter towards the end: each
// has at most half of the elements that are left, but at least an eighth of the usual ones.
class BucketEnds {
 public:
  BucketEnds(int64_t bucket_elements, int parts, int64_t trained, bool shorter)
      : parts_(parts),
        usual_(collectives::bucket_length(bucket_elements, parts)),
        least_(shorter ? collectives::bucket_length(usual_ / 8, parts) : usual_),
        trained_(trained) {}

  // The max end of a bucket that begins here.
  int64_t after(int64_t begin, SortKey::Region region) const {
    if (region != SortKey::kTrained) return begin + usual_;
    const int64_t half = std::max<int64_t>((trained_ - begin) / 2, 0);
    return begin + std::clamp(collectives::bucket_length(half, parts_), least_, usual_);
  }

 private:
  int parts_;
  int64_t usual_, least_, trained_;
};

}  // namespace

ParameterLayout make_layout(const graph::Graph& training,
                            int lanes,
                            int64_t bucket_elements,
                            int ranks,
                            bool short_end,
                            int64_t alignment) {
  // Slots begin at slice boundaries, so that a parameter has the same chunks of squares
  // (base/exact_sum.h) and the same blocks of moments at any offset.
  LOCKSTEP_CHECK(alignment % collectives::kSliceAlignment == 0);
  const auto aligned = [&](int64_t elements) {
    return (elements + alignment - 1) / alignment * alignment;
  };
  const std::vector<SortKey> keys = sort_keys(training);
  std::vector<size_t> order(training.parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(
      order.begin(), order.end(), [&](size_t a, size_t b) { return keys[a] < keys[b]; });

  ParameterLayout layout;
  layout.lanes = lanes;
  if (!training.parameters.empty()) layout.compute = training[training.parameters[0]].dtype;
  layout.slots.resize(training.parameters.size());
  const int parts = collectives::slices(lanes, ranks) *
                    static_cast<int>(alignment / collectives::kSliceAlignment);
  int64_t trained = 0;
  for (size_t i = 0; i < training.parameters.size(); ++i) {
    if (keys[i].region == SortKey::kTrained)
      trained += aligned(training[training.parameters[i]].memory_elements());
  }
  const BucketEnds ends(bucket_elements, parts, trained, short_end);
  int64_t offset = 0, block_begin = 0, bucket_begin = 0;
  SortKey::Region region = SortKey::kTrained;
  std::vector<collectives::Range>* buckets = &layout.buckets;
  // Ends the buckets that are full.
  const auto end_buckets = [&] {
    for (int64_t end = ends.after(bucket_begin, region); end <= offset;
         end = ends.after(bucket_begin, region)) {
      buckets->push_back({bucket_begin, end});
      bucket_begin = end;
    }
  };
  const auto end_block = [&] {
    offset = collectives::padded_elements(offset, parts);
    end_buckets();
    if (offset > bucket_begin) buckets->push_back({bucket_begin, offset});
    if (offset > block_begin) layout.blocks.push_back({block_begin, offset});
    block_begin = bucket_begin = offset;
  };
  std::optional<int64_t> statistics_begin, frozen_begin;
  for (size_t index : order) {
    const graph::Tensor& tensor = training[training.parameters[index]];
    const int64_t elements = tensor.shape.elements(), in_memory = tensor.memory_elements();
    // The last bucket of a large parameter takes more parameters as long as there is room.
    const bool fits =
        offset == block_begin ||
        (offset > bucket_begin && offset + in_memory <= ends.after(bucket_begin, region));
    if (keys[index].region != region || !fits) end_block();
    region = keys[index].region;
    if (region == SortKey::kFrozen) buckets = &layout.frozen_buckets;
    if (region == SortKey::kStatistics && !statistics_begin) statistics_begin = offset;
    if (region == SortKey::kFrozen && !frozen_begin) frozen_begin = offset;
    layout.slots[index] = {
        tensor, tensor.name, tensor.shape, offset, elements, offset, in_memory - elements};
    layout.parameters += elements;
    if (tensor.frozen) layout.frozen_parameters += elements;
    offset += aligned(in_memory);
    end_buckets();
  }
  end_block();
  layout.elements = offset;
  layout.frozen_elements = offset - frozen_begin.value_or(offset);
  layout.statistics_begin = statistics_begin.value_or(layout.trained());
  layout.gradient_elements = layout.trained();
  return layout;
}

std::vector<int64_t> ParameterLayout::begins() const {
  std::vector<int64_t> begins = slot_begins();
  if (!by_parts) return begins;
  for (const TensorPart& part : trained_parts(*this)) begins.push_back(part.range.begin);
  std::ranges::sort(begins);
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  return begins;
}

std::vector<int64_t> ParameterLayout::slot_begins() const {
  std::vector<int64_t> begins;
  for (const ParameterSlot& slot : slots) begins.push_back(slot.offset);
  std::ranges::sort(begins);
  return begins;
}

size_t ParameterLayout::slot_at(int64_t flat) const {
  std::optional<size_t> found;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].offset <= flat && (!found || slots[i].offset > slots[*found].offset)) found = i;
  }
  return found.value();
}

std::vector<collectives::Range> ParameterLayout::all_buckets() const {
  std::vector<collectives::Range> all = buckets;
  all.insert(all.end(), frozen_buckets.begin(), frozen_buckets.end());
  return all;
}

std::vector<std::string> ParameterLayout::bucket_names() const {
  std::vector<std::string> names;
  for (const collectives::Range& bucket : all_buckets()) {
    const std::string& first = slots[slot_at(bucket.begin)].name;
    const std::string& last = slots[slot_at(bucket.end - 1)].name;
    names.push_back(first == last ? first : first + " to " + last);
  }
  return names;
}

size_t ParameterLayout::gradient_buckets() const {
  const auto end =
      std::find_if(buckets.begin(), buckets.end(), [&](const collectives::Range& bucket) {
        return bucket.begin >= statistics_begin;
      });
  return static_cast<size_t>(end - buckets.begin());
}

std::vector<std::vector<int>> bucket_schedule(const graph::Graph& training,
                                              const ParameterLayout& layout) {
  const std::vector<int> writer = last_writers(training);
  std::vector<std::vector<int>> after(training.ops.size());
  // a bucket is never ready before an earlier one
  int ready = static_cast<int>(training.forward_ops) - 1;
  for (size_t b = 0; b < layout.buckets.size(); ++b) {
    for (size_t i = 0; i < layout.slots.size(); ++i) {
      if (!layout.slots[i].frozen && overlap(layout.slots[i], layout.buckets[b]))
        ready = std::max(ready, finished_after(training, writer, i));
    }
    after[static_cast<size_t>(ready)].push_back(static_cast<int>(b));
  }
  return after;
}

double usual_bucket_mib(const graph::Graph& training, DType wire) {
  constexpr double kCost = 128.0 * 1024, kMiB = 1024.0 * 1024;
  double elements = 0;
  for (const TensorId parameter : training.parameters) {
    if (!training[parameter].frozen)
      elements += static_cast<double>(training.shape(parameter).elements());
  }
  const auto element_bytes = static_cast<double>(size_of(wire));
  const double mib =
      std::sqrt(elements * element_bytes * kCost) / element_bytes * sizeof(float) / kMiB;
  return std::clamp(std::round(10 * mib) / 10, 0.1, 1024.0);
}

}  // namespace lockstep::plan
