#pragma once
// The first half of LAMB (You et al., 2020): overwrites each gradient with the direction of its
// element's descent. The second half is SGD along this direction, with a rate per tensor.

#include <cmath>

#include "runtime/base/host_device.h"
#include "runtime/exec/optimizers/slice.h"

namespace lockstep::exec {

struct LambDirection {
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float inverse_correction1;       // 1 / (1 - beta1^step)
  float inverse_root_correction2;  // 1 / sqrt(1 - beta2^step)
  float epsilon;
  float weight_decay;
  float grad_scale;  // multiplies every gradient first

  template <typename Config>
  static LambDirection make(const Config& config, const UpdateStep& step) {
    const double beta1 = config.beta1, beta2 = config.beta2;
    const double correction1 = 1 - std::pow(beta1, static_cast<double>(step.number));
    const double correction2 = 1 - std::pow(beta2, static_cast<double>(step.number));
    return {.beta1 = static_cast<float>(beta1),
            .one_minus_beta1 = static_cast<float>(1 - beta1),
            .beta2 = static_cast<float>(beta2),
            .one_minus_beta2 = static_cast<float>(1 - beta2),
            .inverse_correction1 = static_cast<float>(1 / correction1),
            .inverse_root_correction2 = static_cast<float>(1 / std::sqrt(correction2)),
            .epsilon = static_cast<float>(config.epsilon),
            .weight_decay = static_cast<float>(step.decay_of(config.weight_decay)),
            .grad_scale = static_cast<float>(step.gradient_scale)};
  }

  // m <- beta1 m + (1 - beta1) g; v <- beta2 v + (1 - beta2) g^2;
  // g <- (m / correction1) / (sqrt(v / correction2) + epsilon) + weight_decay p.
  LOCKSTEP_HD void operator()(float& gradient,
                              const float& parameter,
                              float& first_moment,
                              float& second_moment) const {
    const float g = gradient * grad_scale;
    first_moment = std::fma(beta1, first_moment, one_minus_beta1 * g);
    second_moment = std::fma(beta2, second_moment, one_minus_beta2 * g * g);
    const float denominator = std::fma(std::sqrt(second_moment), inverse_root_correction2, epsilon);
    gradient = std::fma(weight_decay, parameter, first_moment * inverse_correction1 / denominator);
  }
};

}  // namespace lockstep::exec
