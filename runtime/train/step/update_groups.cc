#include "runtime/train/step/update_groups.h"

#include <algorithm>
#include <variant>

#include "runtime/plan/muon_layout.h"

namespace lockstep::train {

std::string optimizer_name(const OptimizerConfig& config) { return config::name_of(config.kind); }

bool is_decayed(const OptimizerConfig& config, const plan::ParameterSlot& slot) {
  if (slot.running_momentum > 0 || slot.frozen) return false;
  if (slot.weight_decay >= 0) return slot.weight_decay > 0;
  return slot.decay || config.decay_bias_and_norm;
}

std::vector<size_t> adapted_slots(const OptimizerConfig& config,
                                  const plan::ParameterLayout& layout) {
  std::vector<size_t> slots;
  for (size_t i = 0; i < layout.slots.size() && is_layer_wise(config); ++i) {
    if (is_decayed(config, layout.slots[i])) slots.push_back(i);
  }
  return slots;
}

UpdateGroups::UpdateGroups(const OptimizerConfig& config, const plan::ParameterLayout& layout) {
  const std::vector<size_t> adapted = adapted_slots(config, layout);
  const auto* muon = std::get_if<MuonConfig>(&config.kind);
  const std::vector<size_t> matrices =
      muon == nullptr ? std::vector<size_t>() : plan::muon_slots(*muon, layout);
  for (size_t i = 0; i < layout.slots.size(); ++i) {
    const plan::ParameterSlot& slot = layout.slots[i];
    if (slot.frozen) {
      of_slot.push_back(0);
      continue;
    }
    UpdateGroup group;
    group.running_momentum = slot.running_momentum;
    if (!group.statistics()) {
      group.decays = is_decayed(config, slot);
      group.lr_scale = slot.lr_scale;
      group.matrix = std::ranges::binary_search(matrices, i);
      if (group.decays) group.weight_decay = slot.weight_decay;
      const auto own_rate = std::find(adapted.begin(), adapted.end(), i);
      if (own_rate != adapted.end())
        group.adapted = static_cast<size_t>(own_rate - adapted.begin());
    }
    const auto found = std::find(groups.begin(), groups.end(), group);
    of_slot.push_back(static_cast<size_t>(found - groups.begin()));
    if (found == groups.end()) groups.push_back(group);
  }
}

}  // namespace lockstep::train
