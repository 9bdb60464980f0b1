#pragma once
// Whether a step's update is made, and what its gradients are multiplied by. Computed on the host
// or on the device, with the same bits.

#include <cmath>
#include <limits>

#include "collectives/reduce/step_sums.h"
#include "runtime/base/host_device.h"

namespace lockstep::exec {

// What the decision depends on besides the sums of the step. The gradients are those of the loss
// sum, divided by `rows` and multiplied by the loss scale.
struct UpdateRule {
  double rows = 1;  // of a global batch
  double loss_scale = 1;
  double clip_norm = 0;  // limit of the mean gradient's norm; 0: none
  bool squares = false;  // the optimizer averages squared gradients
};

struct UpdateDecision {
  double gradient_norm = 0;   // of the mean gradient, before clipping
  double gradient_scale = 1;  // makes the sum a mean, and clips it
  // A moment that averages squares could become infinite, which would freeze its parameter.
  bool moments_overflow = false;
  bool finite = true;  // loss, gradient and moments; if false, nothing is updated
};

// a * b, rounded. By itself nvcc would fuse it with a sum that follows.
LOCKSTEP_HD double rounded_product(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

LOCKSTEP_HD bool is_finite(double x) { return std::fabs(x) <= std::numeric_limits<double>::max(); }

// The factor that reduces a gradient of this norm to the limit; 1 if the limit is 0.
LOCKSTEP_HD double clip_factor(double norm, double limit) {
  // the usual value, so that losses can be compared with other frameworks
  constexpr double kEpsilon = 1e-6;
  if (!(limit > 0)) return 1.0;
  const double factor = limit / (norm + kEpsilon);
  return factor < 1.0 ? factor : 1.0;
}

LOCKSTEP_HD UpdateDecision decide(const UpdateRule& rule, const collectives::StepSums& sums) {
  const double counted = sums.valid_count > 0 ? sums.valid_count : 1;
  const double mean = rule.rows / counted / rule.loss_scale;
  UpdateDecision decision;
  decision.gradient_norm = rounded_product(std::sqrt(sums.squared_norm), mean);
  const double clip = clip_factor(decision.gradient_norm, rule.clip_norm);
  decision.gradient_scale = rounded_product(mean, clip);
  const double clipped = rounded_product(decision.gradient_norm, clip);
  decision.moments_overflow =
      rule.squares && clipped * clipped > static_cast<double>(std::numeric_limits<float>::max());
  decision.finite =
      is_finite(sums.loss_sum) && is_finite(decision.gradient_norm) && !decision.moments_overflow;
  return decision;
}

}  // namespace lockstep::exec
