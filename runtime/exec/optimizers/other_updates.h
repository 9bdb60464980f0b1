#pragma once
// Elementwise updates of parameters that are no optimizers. Neither learning rate, clipping, loss
// scale nor weight decay touches them.

#include <cmath>

#include "runtime/base/host_device.h"

namespace lockstep {

// A running statistic: what comes as its gradient is the sum over the lanes of what each has seen.
// Or the average of the weights, whose `parameter` it is, from the weights as gradients.
struct MovingAverage {
  float keep;    // 1 - momentum
  float weight;  // momentum / lanes

  // p <- keep * p + weight * sum.
  LOCKSTEP_HD void operator()(float sum, float& parameter) const {
    parameter = std::fma(weight, sum, keep * parameter);
  }
};

// Parameters and what stands in the gradients' place change places, bit for bit: so are weights
// and their average exchanged.
struct Exchange {
  LOCKSTEP_HD void operator()(float& other, float& parameter) const {
    const float was = parameter;
    parameter = other;
    other = was;
  }
};

}  // namespace lockstep
