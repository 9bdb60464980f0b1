#pragma once
// Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024): the two
// elementwise parts of its step on a matrix. These are the momentum, and the step along the
// direction that Newton-Schulz iterations compute from it (newton_schulz.h). The formulas are those
// of torch.optim.Muon.

#include <cmath>

#include "runtime/base/host_device.h"
#include "runtime/exec/optimizers/slice.h"

namespace lockstep::exec {

// The first half: overwrites the gradient with the matrix to orthogonalize.
struct MuonMomentum {
  float momentum, one_minus_momentum;
  float grad_scale;  // multiplies every gradient first
  bool nesterov;

  template <typename Config>
  static MuonMomentum make(const Config& config, const UpdateStep& step) {
    const double momentum = config.momentum;
    return {.momentum = static_cast<float>(momentum),
            .one_minus_momentum = static_cast<float>(1 - momentum),
            .grad_scale = static_cast<float>(step.gradient_scale),
            .nesterov = config.nesterov};
  }

  // m <- momentum m + (1 - momentum) g; g <- m, or with Nesterov momentum m + (1 - momentum) g.
  LOCKSTEP_HD void operator()(float& gradient, const float& /*parameter*/, float& moment) const {
    const float g = one_minus_momentum * (gradient * grad_scale);
    moment = std::fma(momentum, moment, g);
    gradient = nesterov ? std::fma(momentum, moment, g) : moment;
  }
};

// The update with the orthogonalized direction.
struct MuonStep {
  float lr;
  float decay_factor;  // multiplies the parameter

  template <typename Config>
  static MuonStep make(const Config& config, const UpdateStep& step) {
    return {.lr = static_cast<float>(step.lr),
            .decay_factor = static_cast<float>(1 - step.lr * step.decay_of(config.weight_decay))};
  }

  // p <- decay_factor p - lr direction.
  LOCKSTEP_HD void operator()(float direction, float& parameter) const {
    parameter = std::fma(-lr, direction, parameter * decay_factor);
  }
};

}  // namespace lockstep::exec
