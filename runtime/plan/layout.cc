// The flat parameter buffer: slots in the order in which the backward pass finishes their
// gradients.
#include "runtime/plan/layout.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/base/error.h"

namespace lockstep {
namespace {

// Slots begin where slices may: their chunks of squares are the same ones wherever they lie.
constexpr int64_t kSlotAlignment = kSliceAlignment;

std::vector<int> last_writers(const Graph& graph) {
  std::vector<int> writer(graph.tensors.size(), -1);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (TensorId id : graph.ops[i].outputs) {
      if (id != kNoTensor) writer[static_cast<size_t>(id)] = static_cast<int>(i);
    }
  }
  return writer;
}

// Where a parameter lies in the flat buffer: behind all with a smaller place.
struct Place {
  enum Region { kTrained, kStatistics, kFrozen } region = kTrained;
  int order = 0;  // within it
  auto operator<=>(const Place&) const = default;
};

int finished_after(const Graph& graph, const std::vector<int>& writer, size_t parameter) {
  const TensorId gradient = graph[graph.parameters[parameter]].gradient;
  LOCKSTEP_CHECK(
      gradient != kNoTensor, "{} has no gradient ", graph[graph.parameters[parameter]].name);
  return writer[static_cast<size_t>(gradient)];
}

// Frozen ones lie as the others do, those of the last layers first.
std::vector<Place> places_of(const Graph& training) {
  const std::vector<int> writer = last_writers(training);
  std::vector<int> first_reader(training.tensors.size(), 0);
  for (size_t i = training.forward_ops; i-- > 0;) {
    for (TensorId id : training.ops[i].inputs) {
      if (id != kNoTensor) first_reader[static_cast<size_t>(id)] = static_cast<int>(i);
    }
  }
  std::vector<Place> places;
  for (size_t i = 0; i < training.parameters.size(); ++i) {
    const TensorId id = training.parameters[i];
    if (training[id].frozen) {
      places.push_back({Place::kFrozen, -first_reader[static_cast<size_t>(id)]});
    } else {
      places.push_back({training[id].running_momentum > 0 ? Place::kStatistics : Place::kTrained,
                        finished_after(training, writer, i)});
    }
  }
  return places;
}

}  // namespace

ParameterLayout make_layout(const Graph& training, int lanes, int64_t bucket_elements) {
  const std::vector<Place> places = places_of(training);
  std::vector<size_t> order(training.parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(
      order.begin(), order.end(), [&](size_t a, size_t b) { return places[a] < places[b]; });

  ParameterLayout layout;
  layout.lanes = lanes;
  layout.slots.resize(training.parameters.size());
  const int64_t most = bucket_length(bucket_elements, lanes);
  int64_t offset = 0, block_begin = 0;
  const auto end_block = [&] {
    offset = padded_elements(offset, lanes);
    if (offset > block_begin) layout.blocks.push_back({block_begin, offset});
    block_begin = offset;
  };
  std::optional<int64_t> statistics_begin, frozen_begin;
  Place::Region region = Place::kTrained;
  for (size_t index : order) {
    const Tensor& tensor = training[training.parameters[index]];
    const int64_t elements = tensor.shape.elements();
    // A large parameter's last bucket takes others in as far as there is room.
    const int64_t filled = offset - block_begin, in_last = filled % most;
    const bool fits = filled == 0 || (in_last > 0 && in_last + elements <= most);
    if (places[index].region != region || !fits) end_block();
    region = places[index].region;
    if (region == Place::kStatistics && !statistics_begin) statistics_begin = offset;
    if (region == Place::kFrozen && !frozen_begin) frozen_begin = offset;
    layout.slots[index] = {.name = tensor.name,
                           .shape = tensor.shape,
                           .offset = offset,
                           .elements = elements,
                           .decay = tensor.decay,
                           .initializer = tensor.initializer,
                           .running_momentum = tensor.running_momentum,
                           .channels_last = tensor.channels_last,
                           .gradient_offset = offset,
                           .row_parts = tensor.row_parts,
                           .lr_scale = tensor.lr_scale,
                           .weight_decay = tensor.weight_decay,
                           .frozen = tensor.frozen};
    layout.parameters += elements;
    if (tensor.frozen) layout.frozen_parameters += elements;
    offset += (elements + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  }
  end_block();
  layout.elements = offset;
  layout.frozen_elements = offset - frozen_begin.value_or(offset);
  layout.statistics_begin = statistics_begin.value_or(layout.trained());
  return layout;
}

std::vector<int64_t> ParameterLayout::begins() const {
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

std::vector<Range> cut_buckets(const ParameterLayout& layout, int64_t bucket_elements) {
  std::vector<Range> buckets;
  for (const Range& block : layout.blocks) {
    const std::vector<Range> cut = make_buckets(block, layout.lanes, bucket_elements);
    buckets.insert(buckets.end(), cut.begin(), cut.end());
  }
  return buckets;
}

std::vector<std::vector<int>> bucket_schedule(const Graph& training,
                                              const ParameterLayout& layout,
                                              const std::vector<Range>& buckets) {
  const std::vector<int> writer = last_writers(training);
  std::vector<std::vector<int>> after(training.ops.size());
  int ready = static_cast<int>(training.forward_ops) - 1;  // never before an earlier bucket
  for (size_t b = 0; b < buckets.size(); ++b) {
    for (size_t i = 0; i < layout.slots.size(); ++i) {
      if (!layout.slots[i].frozen && overlap(layout.slots[i], buckets[b]))
        ready = std::max(ready, finished_after(training, writer, i));
    }
    after[static_cast<size_t>(ready)].push_back(static_cast<int>(b));
  }
  return after;
}

}  // namespace lockstep
