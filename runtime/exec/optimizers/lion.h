#pragma once
// Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023): every element moves by
// the learning rate, along the sign of an average of gradient and moment.

#include <cmath>
#include <string>
#include <vector>

#include "runtime/base/host_device.h"
#include "runtime/exec/optimizers/slice.h"

namespace lockstep::exec {

struct LionUpdate {
  float lr;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float weight_decay;  // decoupled: times the parameter, added to the sign
  float grad_scale;    // multiplies every gradient first

  template <typename Config>
  static std::vector<std::string> moment_names(const Config&) {
    return {"exp_avg"};
  }
  template <typename Config>
  static LionUpdate make(const Config& config, const UpdateStep& step) {
    const double beta1 = config.beta1, beta2 = config.beta2;
    return {.lr = static_cast<float>(step.lr),
            .beta1 = static_cast<float>(beta1),
            .one_minus_beta1 = static_cast<float>(1 - beta1),
            .beta2 = static_cast<float>(beta2),
            .one_minus_beta2 = static_cast<float>(1 - beta2),
            .weight_decay = static_cast<float>(step.decay_of(config.weight_decay)),
            .grad_scale = static_cast<float>(step.gradient_scale)};
  }

  // c = beta1 m + (1 - beta1) g; p <- p - lr (sign(c) + weight_decay p);
  // m <- beta2 m + (1 - beta2) g. The sign of 0 is 0.
  LOCKSTEP_HD void operator()(float gradient, float& parameter, float& moment) const {
    const float g = gradient * grad_scale;
    const float c = std::fma(beta1, moment, one_minus_beta1 * g);
    const float sign = static_cast<float>(c > 0) - static_cast<float>(c < 0);
    parameter = std::fma(-lr, std::fma(weight_decay, parameter, sign), parameter);
    moment = std::fma(beta2, moment, one_minus_beta2 * g);
  }
};

}  // namespace lockstep::exec
