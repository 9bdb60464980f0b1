#include "runtime/plan/adafactor_layout.h"

#include "runtime/base/error.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/sharding_plan.h"

namespace lockstep::plan {
namespace {

constexpr size_t kWords = 2 * sizeof(int64_t);  // bytes of a sum
constexpr size_t kConstants = 16;               // bytes of exec::FactoredStep

// PyTorch's matrices are over the last two axes. In memory, a convolution has its channels last.
FactoredShape shape_of(const ParameterSlot& slot) {
  const bool kernel = slot.shape.rank() > 2 && slot.channels_last.rank() > 3;
  const Shape& shape = kernel ? slot.channels_last : slot.shape;
  const int axes = shape.rank() - (kernel ? 1 : 0);
  FactoredShape factored = {.batch = 1,
                            .rows = shape[axes - 2],
                            .columns = shape[axes - 1],
                            .inner = kernel ? shape[axes] : 1};
  for (int axis = 0; axis < axes - 2; ++axis) factored.batch *= shape[axis];
  return factored;
}

}  // namespace

std::vector<TensorPart> parts_of(const ParameterLayout& layout, size_t number) {
  const ParameterSlot& slot = layout.slots[number];
  std::vector<int64_t> rows = slot.row_parts;
  if (rows.empty()) return {{number, {slot.offset, slot.offset + slot.elements}}};
  std::vector<TensorPart> parts;
  int64_t begin = slot.offset;
  for (const int64_t count : rows) {
    const int64_t end = begin + count * (slot.elements / slot.shape[0]);
    parts.push_back({number, {begin, end}});
    begin = end;
  }
  return parts;
}

std::vector<TensorPart> trained_parts(const ParameterLayout& layout) {
  std::vector<TensorPart> all;
  for (size_t i = 0; i < layout.slots.size(); ++i) {
    if (layout.slots[i].frozen || layout.slots[i].running_momentum > 0) continue;
    const std::vector<TensorPart> parts = parts_of(layout, i);
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return all;
}

bool is_factored(const ParameterSlot& slot) { return slot.is_trained_matrix(); }

size_t AdafactorLayout::device_bytes() const {
  return (separate ? kConstants : 0) + static_cast<size_t>(averages) * (kWords + sizeof(float));
}

size_t AdafactorLayout::host_bytes() const {
  const size_t messages = static_cast<size_t>(padded()) * (2 * kWords + sizeof(float));
  return static_cast<size_t>(averages) * (sizeof(float) + (separate ? kWords + sizeof(float) : 0)) +
         messages;
}

int64_t AdafactorLayout::sent_bytes() const {
  return (ranks - 1) * share * static_cast<int64_t>(kWords + sizeof(float));
}

AdafactorLayout make_adafactor_layout(const ParameterLayout& parameters,
                                      const ShardingPlan& sharding,
                                      bool separate) {
  AdafactorLayout layout;
  layout.ranks = sharding.topology.ranks();
  layout.separate = separate;
  for (const TensorPart& part : trained_parts(parameters)) {
    const ParameterSlot& slot = parameters.slots[part.slot];
    if (!is_factored(slot)) continue;
    FactoredShape shape = shape_of(slot);
    if (!slot.row_parts.empty()) {
      LOCKSTEP_CHECK(slot.shape.rank() == 2);
      shape.rows = part.range.size() / shape.columns;
    }
    layout.tensors.push_back({part, shape, layout.averages});
    layout.averages += shape.averages();
  }
  if (sharding.shards_optimizer() && layout.ranks > 1)
    layout.share = (layout.averages + layout.ranks - 1) / layout.ranks;
  return layout;
}

}  // namespace lockstep::plan
