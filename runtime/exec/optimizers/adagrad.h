#pragma once
// Adagrad (Duchi, Hazan and Singer, 2011). The formulas are those of torch.optim.Adagrad: epsilon
// is added to the root, and weight decay to the gradient.

#include <cmath>
#include <string>
#include <vector>

#include "runtime/base/host_device.h"
#include "runtime/exec/optimizers/slice.h"

namespace lockstep::exec {

struct AdagradUpdate {
  float lr;  // divided by 1 + lr_decay (steps so far)
  float epsilon;
  float weight_decay;  // times the parameter, added to the gradient
  float grad_scale;    // multiplies every gradient first

  template <typename Config>
  static std::vector<std::string> moment_names(const Config&) {
    return {"sum"};
  }
  template <typename Config>
  static AdagradUpdate make(const Config& config, const UpdateStep& step) {
    const double slower = 1 + static_cast<double>(step.number - 1) * config.lr_decay;
    return {.lr = static_cast<float>(step.lr / slower),
            .epsilon = static_cast<float>(config.epsilon),
            .weight_decay = static_cast<float>(step.decay_of(config.weight_decay)),
            .grad_scale = static_cast<float>(step.gradient_scale)};
  }

  // s <- s + g^2; p <- p - lr g / (sqrt(s) + epsilon).
  LOCKSTEP_HD void operator()(float gradient, float& parameter, float& sum) const {
    const float g = std::fma(weight_decay, parameter, gradient * grad_scale);
    sum = std::fma(g, g, sum);
    parameter = std::fma(-lr, g / (std::sqrt(sum) + epsilon), parameter);
  }
};

}  // namespace lockstep::exec
