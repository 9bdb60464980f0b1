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

int finished_after(const Graph& graph, const std::vector<int>& writer, size_t parameter) {
  const TensorId gradient = graph[graph.parameters[parameter]].gradient;
  LOCKSTEP_CHECK(
      gradient != kNoTensor, "{} has no gradient ", graph[graph.parameters[parameter]].name);
  return writer[static_cast<size_t>(gradient)];
}

}  // namespace

ParameterLayout make_layout(const Graph& training, int lanes, int64_t bucket_elements) {
  const std::vector<int> writer = last_writers(training);
  std::vector<size_t> order(training.parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto is_statistic = [&](size_t parameter) {
    return training[training.parameters[parameter]].running_momentum > 0;
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(is_statistic(a), finished_after(training, writer, a)) <
           std::pair(is_statistic(b), finished_after(training, writer, b));
  });

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
  bool any_statistic = false;
  for (size_t index : order) {
    const Tensor& tensor = training[training.parameters[index]];
    const int64_t elements = tensor.shape.elements();
    const bool first_statistic = is_statistic(index) && !any_statistic;
    // A large parameter's last bucket takes others in as far as there is room.
    const int64_t filled = offset - block_begin, in_last = filled % most;
    const bool fits = filled == 0 || (in_last > 0 && in_last + elements <= most);
    if (first_statistic || !fits) end_block();
    if (first_statistic) {
      any_statistic = true;
      layout.statistics_begin = offset;
    }
    layout.slots[index] = {.name = tensor.name,
                           .shape = tensor.shape,
                           .offset = offset,
                           .elements = elements,
                           .decay = tensor.decay,
                           .initializer = tensor.initializer,
                           .running_momentum = tensor.running_momentum,
                           .channels_last = tensor.channels_last,
                           .gradient_offset = offset,
                           .row_parts = tensor.row_parts};
    layout.parameters += elements;
    offset += (elements + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  }
  end_block();
  layout.elements = offset;
  if (!any_statistic) layout.statistics_begin = layout.elements;
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
      if (overlap(layout.slots[i], buckets[b]))
        ready = std::max(ready, finished_after(training, writer, i));
    }
    after[static_cast<size_t>(ready)].push_back(static_cast<int>(b));
  }
  return after;
}

}  // namespace lockstep
