#pragma once
// Groups of parameters that are updated with the same constants.

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/exec/optimizers/slice.h"
#include "runtime/plan/adafactor_layout.h"
#include "runtime/plan/plan.h"

namespace lockstep::train {

// "adamw", as checkpoints name it.
std::string optimizer_name(const OptimizerConfig& config);
// Whether every tensor has a rate of its own: LARS, LAMB and Adafactor. Muon is neither layer-wise
// nor elementwise.
bool is_layer_wise(const OptimizerConfig& config);
// Whether the parameter has weight decay: its own, if it is set, otherwise the optimizer's.
bool is_decayed(const OptimizerConfig& config, const plan::ParameterSlot& slot);
// The tensors that have a rate of their own, in the order of the slots: for LARS and LAMB the
// trained parameters with weight decay, for Adafactor all trained ones, each of their row_parts
// apart.
std::vector<plan::TensorPart> adapted_tensors(const OptimizerConfig& config,
                                              const plan::ParameterLayout& layout);

// What the parameters of a group have in common.
struct UpdateGroup {
  static constexpr size_t kNotAdapted = static_cast<size_t>(-1);

  float running_momentum = 0;    // above 0: running statistics, which no optimizer updates
  bool decays = false;           // whether they have weight decay
  float lr_scale = 1;            // multiplies the rate
  float weight_decay = -1;       // -1: the optimizer's
  bool matrix = false;           // without a last moment: see moment_layout.h
  size_t adapted = kNotAdapted;  // index in adapted_tensors(), for a group of one tensor

  bool operator==(const UpdateGroup&) const = default;
  bool statistics() const { return running_momentum > 0; }
  // The step of these parameters if that of all is `step`.
  exec::UpdateStep of(exec::UpdateStep step) const {
    step.lr *= lr_scale;
    step.decays = decays;
    step.weight_decay = weight_decay;
    return step;
  }
};

struct UpdateGroups {
  std::vector<UpdateGroup> groups;
  // The index of the group of a parameter's elements from `flat` on. Frozen parameters have none.
  size_t at(size_t slot, int64_t flat) const;

  UpdateGroups(const OptimizerConfig& config, const plan::ParameterLayout& layout);

 private:
  struct Part {
    int64_t begin;  // in the flat buffer
    size_t group;
  };
  std::vector<std::vector<Part>> of_slot_;  // by parameter index
};

}  // namespace lockstep::train
