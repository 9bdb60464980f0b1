#pragma once
// Elementwise updates of parameters other than an optimizer's. Learning rate, clipping, loss scale
// and weight decay do not affect them.

#include <cmath>

#include "runtime/base/host_device.h"

namespace lockstep::exec {

// Updates a running statistic: the "gradient" is the sum over the lanes of what each lane has
// measured. Also updates the average of the weights: `parameter` is the average, the "gradients"
// are the weights.
struct MovingAverage {
  float keep;    // 1 - momentum
  float weight;  // momentum / lanes

  // p <- keep * p + weight * sum.
  LOCKSTEP_HD void operator()(float sum, float& parameter) const {
    parameter = std::fma(weight, sum, keep * parameter);
  }
};

// Swaps parameters and the array passed as gradients, bit for bit. Used to exchange weights and
// their average.
struct Exchange {
  LOCKSTEP_HD void operator()(float& other, float& parameter) const {
    const float was = parameter;
    parameter = other;
    other = was;
  }
};

}  // namespace lockstep::exec
