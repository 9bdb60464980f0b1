#pragma once
// The parameters that are updated alike: with the same constants.

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/exec/optimizers/slice.h"
#include "runtime/plan/plan.h"

namespace lockstep {

// "adamw", as checkpoints name it.
std::string optimizer_name(const OptimizerConfig& config);
// Whether every tensor has a rate of its own: LARS and LAMB. Muon is neither this nor elementwise.
bool is_layer_wise(const OptimizerConfig& config);
// Whether weight decay touches the parameter: its own, where it has one, else the optimizer's.
bool is_decayed(const OptimizerConfig& config, const ParameterSlot& slot);
// The parameters that have a rate of their own, by number: those that learn with weight decay.
std::vector<size_t> adapted_slots(const OptimizerConfig& config, const ParameterLayout& layout);

// What the parameters of a group have in common.
struct UpdateGroup {
  static constexpr size_t kNotAdapted = static_cast<size_t>(-1);

  float running_momentum = 0;    // above 0: running statistics, which no optimizer moves
  bool decays = false;           // weight decay touches them
  float lr_scale = 1;            // multiplies the rate
  float weight_decay = -1;       // -1: as the optimizer says
  bool matrix = false;           // Muon makes directions of matrices for them
  size_t adapted = kNotAdapted;  // place among adapted_slots(), of a group of one tensor

  bool operator==(const UpdateGroup&) const = default;
  bool statistics() const { return running_momentum > 0; }
  // The step of these parameters, where that of all is `step`.
  UpdateStep of(UpdateStep step) const {
    step.lr *= lr_scale;
    step.decays = decays;
    step.weight_decay = weight_decay;
    return step;
  }
};

struct UpdateGroups {
  std::vector<UpdateGroup> groups;
  // The place of its group, by number of the parameter; frozen ones are of none.
  std::vector<size_t> of_slot;

  UpdateGroups(const OptimizerConfig& config, const ParameterLayout& layout);
};

}  // namespace lockstep
