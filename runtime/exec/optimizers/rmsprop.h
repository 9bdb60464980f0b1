#pragma once
// RMSprop (Hinton, "Neural networks for machine learning", lecture 6e, 2012; centred: Graves,
// 2013). The formulas are those of torch.optim.RMSprop: epsilon is added to the root, and weight
// decay to the gradient.

#include <cmath>
#include <string>
#include <vector>

#include "runtime/base/host_device.h"
#include "runtime/exec/optimizers/slice.h"

namespace lockstep::exec {

struct RmspropUpdate {
  float lr;
  float alpha, one_minus_alpha;
  float epsilon;
  float momentum;      // 0: no momentum buffer is kept
  float weight_decay;  // times the parameter, added to the gradient
  float grad_scale;    // multiplies every gradient first
  bool centred;        // an average of gradients is kept

  template <typename Config>
  static std::vector<std::string> moment_names(const Config& config) {
    std::vector<std::string> names = {"square_avg"};
    if (config.momentum > 0) names.push_back("momentum_buffer");
    if (config.centred) names.push_back("grad_avg");
    return names;
  }
  template <typename Config>
  static RmspropUpdate make(const Config& config, const UpdateStep& step) {
    const double alpha = config.alpha;
    return {.lr = static_cast<float>(step.lr),
            .alpha = static_cast<float>(alpha),
            .one_minus_alpha = static_cast<float>(1 - alpha),
            .epsilon = static_cast<float>(config.epsilon),
            .momentum = static_cast<float>(config.momentum),
            .weight_decay = static_cast<float>(step.decay_of(config.weight_decay)),
            .grad_scale = static_cast<float>(step.gradient_scale),
            .centred = config.centred};
  }

  // v <- alpha v + (1 - alpha) g^2; p <- p - lr g / (sqrt(v) + epsilon).
  LOCKSTEP_HD void operator()(float gradient, float& parameter, float& squares) const {
    const float g = averaged(gradient, parameter, squares);
    parameter = std::fma(-lr, g / (std::sqrt(squares) + epsilon), parameter);
  }
  // With an average or with momentum.
  LOCKSTEP_HD void operator()(float gradient,
                              float& parameter,
                              float& squares,
                              float& other) const {
    const float g = averaged(gradient, parameter, squares);
    if (centred) {
      parameter = std::fma(-lr, g / deviation(g, squares, other), parameter);
    } else {
      other = std::fma(momentum, other, g / (std::sqrt(squares) + epsilon));
      parameter = std::fma(-lr, other, parameter);
    }
  }
  // With both.
  LOCKSTEP_HD void operator()(
      float gradient, float& parameter, float& squares, float& buffer, float& average) const {
    const float g = averaged(gradient, parameter, squares);
    buffer = std::fma(momentum, buffer, g / deviation(g, squares, average));
    parameter = std::fma(-lr, buffer, parameter);
  }

  // Returns the gradient with weight decay, and averages its square.
  LOCKSTEP_HD float averaged(float gradient, float parameter, float& squares) const {
    const float g = std::fma(weight_decay, parameter, gradient * grad_scale);
    squares = std::fma(alpha, squares, one_minus_alpha * g * g);
    return g;
  }
  // m <- alpha m + (1 - alpha) g; returns sqrt(v - m^2) + epsilon. Rounding may make the difference
  // negative, which counts as 0; PyTorch's root is NaN then.
  LOCKSTEP_HD float deviation(float g, float squares, float& average) const {
    average = std::fma(alpha, average, one_minus_alpha * g);
    const float variance = std::fma(-average, average, squares);
    return std::sqrt(variance > 0 ? variance : 0.0f) + epsilon;
  }
};

}  // namespace lockstep::exec
