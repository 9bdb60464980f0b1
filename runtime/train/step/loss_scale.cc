#include "runtime/train/step/loss_scale.h"

#include <algorithm>

namespace lockstep::train {

LossScale::LossScale(const RunConfig& config) {
  if (!config::has_fp16_gradients(config)) return;
  state_.value = config.execution.loss_scale;
  growth_steps_ = config.execution.loss_scale_growth_steps;
}

void LossScale::step_done(bool finite) {
  if (!finite) ++state_.skipped;
  if (!dynamic()) return;
  if (!finite) {
    state_.value /= 2;
    state_.good_steps = 0;
  } else if (++state_.good_steps >= growth_steps_) {
    state_.value = std::min(state_.value * 2, kMax);
    state_.good_steps = 0;
  }
}

}  // namespace lockstep::train
