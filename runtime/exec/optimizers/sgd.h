#pragma once
// Stochastic gradient descent, with momentum without dampening, as in PyTorch.

#include <cmath>
#include <string>
#include <vector>

#include "runtime/base/host_device.h"
#include "runtime/exec/optimizers/slice.h"

namespace lockstep::exec {

struct SgdUpdate {
  float lr;
  float momentum;      // 0: no moment is kept
  float weight_decay;  // times the parameter, added to the gradient
  float grad_scale;    // multiplies every gradient first
  bool nesterov;

  template <typename Config>
  static std::vector<std::string> moment_names(const Config& config) {
    if (config.momentum > 0) return {"momentum_buffer"};
    return {};
  }
  template <typename Config>
  static SgdUpdate make(const Config& config, const UpdateStep& step) {
    return {.lr = static_cast<float>(step.lr),
            .momentum = config.momentum,
            .weight_decay = static_cast<float>(step.decay_of(config.weight_decay)),
            .grad_scale = static_cast<float>(step.gradient_scale),
            .nesterov = config.nesterov};
  }

  // p <- p - lr * g, without momentum.
  LOCKSTEP_HD void operator()(float gradient, float& parameter) const {
    const float g = std::fma(weight_decay, parameter, gradient * grad_scale);
    parameter = std::fma(-lr, g, parameter);
  }
  // m <- momentum * m + g; p <- p - lr * m, or with Nesterov p - lr * (g + momentum * m).
  LOCKSTEP_HD void operator()(float gradient, float& parameter, float& moment) const {
    const float g = std::fma(weight_decay, parameter, gradient * grad_scale);
    moment = std::fma(momentum, moment, g);
    const float direction = nesterov ? std::fma(momentum, moment, g) : moment;
    parameter = std::fma(-lr, direction, parameter);
  }
};

}  // namespace lockstep::exec
