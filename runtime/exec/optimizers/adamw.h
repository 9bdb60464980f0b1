#pragma once
// AdamW (Loshchilov and Hutter, 2019): Adam with weight decay decoupled from the gradient: the
// parameter shrinks by lr * weight_decay. The formulas are PyTorch's.

#include "runtime/exec/optimizers/adam.h"

namespace lockstep::exec {

struct AdamwUpdate : AdamUpdate {
  template <typename Config>
  static AdamwUpdate make(const Config& config, const UpdateStep& step) {
    AdamwUpdate update = {AdamUpdate::make(config, step)};
    update.weight_decay = 0;
    update.decay_factor = static_cast<float>(1 - step.lr * step.decay_of(config.weight_decay));
    return update;
  }
};

}  // namespace lockstep::exec
