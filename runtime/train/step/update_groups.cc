#include "runtime/train/step/update_groups.h"

#include <algorithm>
#include <variant>

#include "runtime/plan/moment_layout.h"

namespace lockstep::train {

std::string optimizer_name(const OptimizerConfig& config) { return config::name_of(config.kind); }

bool is_decayed(const OptimizerConfig& config, const plan::ParameterSlot& slot) {
  if (slot.running_momentum > 0 || slot.frozen) return false;
  if (slot.weight_decay >= 0) return slot.weight_decay > 0;
  return slot.decay || config.decay_bias_and_norm;
}

std::vector<plan::TensorPart> adapted_tensors(const OptimizerConfig& config,
                                              const plan::ParameterLayout& layout) {
  if (std::holds_alternative<AdafactorConfig>(config.kind)) return plan::trained_parts(layout);
  std::vector<plan::TensorPart> tensors;
  for (size_t i = 0; i < layout.slots.size() && is_layer_wise(config); ++i) {
    const plan::ParameterSlot& slot = layout.slots[i];
    if (is_decayed(config, slot))
      tensors.push_back({i, {slot.offset, slot.offset + slot.elements}});
  }
  return tensors;
}

UpdateGroups::UpdateGroups(const OptimizerConfig& config, const plan::ParameterLayout& layout) {
  const std::vector<plan::TensorPart> adapted = adapted_tensors(config, layout);
  const std::vector<size_t> matrices = plan::slots_without_last_moment(config, layout);
  const auto number_of = [&](const UpdateGroup& group) {
    const auto found = std::find(groups.begin(), groups.end(), group);
    const auto number = static_cast<size_t>(found - groups.begin());
    if (found == groups.end()) groups.push_back(group);
    return number;
  };
  size_t next = 0;  // of the adapted tensors
  for (size_t i = 0; i < layout.slots.size(); ++i) {
    const plan::ParameterSlot& slot = layout.slots[i];
    std::vector<Part>& parts = of_slot_.emplace_back();
    if (slot.frozen) continue;
    UpdateGroup group;
    group.running_momentum = slot.running_momentum;
    if (!group.statistics()) {
      group.decays = is_decayed(config, slot);
      group.lr_scale = slot.lr_scale;
      group.matrix = std::ranges::binary_search(matrices, i);
      if (group.decays) group.weight_decay = slot.weight_decay;
    }
    for (; next < adapted.size() && adapted[next].slot == i; ++next) {
      group.adapted = next;
      parts.push_back({adapted[next].range.begin, number_of(group)});
    }
    if (parts.empty()) parts.push_back({slot.offset, number_of(group)});
  }
}

size_t UpdateGroups::at(size_t slot, int64_t flat) const {
  const std::vector<Part>& parts = of_slot_[slot];
  const auto after = std::ranges::upper_bound(parts, flat, {}, &Part::begin);
  return std::prev(after)->group;
}

}  // namespace lockstep::train
