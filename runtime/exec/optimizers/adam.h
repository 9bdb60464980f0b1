#pragma once
// Adam (Kingma and Ba, 2015): weight decay is added to the gradient. AMSGrad (Reddi, Kale and
// Kumar, 2018) divides by the largest average of squares so far. The formulas are PyTorch's.

#include <cmath>
#include <string>
#include <vector>

#include "runtime/base/host_device.h"
#include "runtime/exec/optimizers/slice.h"

namespace lockstep::exec {

struct AdamUpdate {
  float step_size;  // lr / (1 - beta1^step)
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float inverse_root_correction2;  // 1 / sqrt(1 - beta2^step)
  float epsilon;
  float weight_decay;  // times the parameter, added to the gradient; 0 if decoupled
  float decay_factor;  // multiplies the parameter: 1 unless decoupled
  float grad_scale;    // multiplies every gradient first

  template <typename Config>
  static std::vector<std::string> moment_names(const Config& config) {
    if (config.amsgrad) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
    return {"exp_avg", "exp_avg_sq"};
  }
  // The corrections are computed in double precision: with beta2 = 0.999 a float would lose four
  // digits near step 1.
  template <typename Config>
  static AdamUpdate make(const Config& config, const UpdateStep& step) {
    const double beta1 = config.beta1, beta2 = config.beta2;
    const double correction1 = 1 - std::pow(beta1, static_cast<double>(step.number));
    const double correction2 = 1 - std::pow(beta2, static_cast<double>(step.number));
    return {.step_size = static_cast<float>(step.lr / correction1),
            .beta1 = static_cast<float>(beta1),
            .one_minus_beta1 = static_cast<float>(1 - beta1),
            .beta2 = static_cast<float>(beta2),
            .one_minus_beta2 = static_cast<float>(1 - beta2),
            .inverse_root_correction2 = static_cast<float>(1 / std::sqrt(correction2)),
            .epsilon = static_cast<float>(config.epsilon),
            .weight_decay = static_cast<float>(step.decay_of(config.weight_decay)),
            .decay_factor = 1.0f,
            .grad_scale = static_cast<float>(step.gradient_scale)};
  }

  // m <- beta1 m + (1 - beta1) g; v <- beta2 v + (1 - beta2) g^2;
  // p <- decay_factor p - step_size m / (sqrt(v / correction2) + epsilon).
  LOCKSTEP_HD void operator()(float gradient,
                              float& parameter,
                              float& first_moment,
                              float& second_moment) const {
    average(gradient, parameter, first_moment, second_moment);
    descend(second_moment, first_moment, parameter);
  }
  // AMSGrad: the same, with x <- max(x, v) in place of v in the denominator.
  LOCKSTEP_HD void operator()(float gradient,
                              float& parameter,
                              float& first_moment,
                              float& second_moment,
                              float& largest) const {
    average(gradient, parameter, first_moment, second_moment);
    largest = second_moment > largest ? second_moment : largest;
    descend(largest, first_moment, parameter);
  }

  LOCKSTEP_HD void average(float gradient,
                           float parameter,
                           float& first_moment,
                           float& second_moment) const {
    const float g = std::fma(weight_decay, parameter, gradient * grad_scale);
    first_moment = std::fma(beta1, first_moment, one_minus_beta1 * g);
    second_moment = std::fma(beta2, second_moment, one_minus_beta2 * g * g);
  }
  LOCKSTEP_HD void descend(float squares, float first_moment, float& parameter) const {
    const float denominator = std::fma(std::sqrt(squares), inverse_root_correction2, epsilon);
    parameter = std::fma(-step_size, first_moment / denominator, parameter * decay_factor);
  }
};

}  // namespace lockstep::exec
