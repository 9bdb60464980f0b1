#pragma once
// batch_norm: y = activation((x - mean) rstd gamma + beta + delta), rstd = 1 / sqrt(variance +
// epsilon), by channel. In training mean and (biased) variance are those of this lane's batch, else
// the running ones.
//   inputs  x (..., C), delta (..., C) or none, gamma (C), beta (C), running_mean (C),
//   running_variance (C), statistics (L, 2, C) f32 of all lanes, or none
//   outputs y (..., C); in training also mean (C) and variance (C), f32
// batch_norm_backward: with g = d_y where the activation passes it, xhat = (x - mean) rstd and sums
// over the M rows, d_beta = sum g, d_gamma = sum g xhat, d_x = gamma rstd (g - d_beta / M - xhat
// d_gamma / M), d_delta = g. The running statistics' gradients are what this lane shows of them: its
// mean and its unbiased variance.
//   inputs  d_y (..., C), y (..., C) where both delta and an activation are (elsewhere what the
//   activation passed follows from x), x, gamma, beta, mean, variance
//   outputs d_x, d_delta or none (no delta, or no activation: then it is d_y), d_gamma, d_beta,
//   d_running_mean, d_running_variance
// A parameter of a norm is used once in a graph, so its gradient is always overwritten.
//
// Synchronised over L lanes, what is summed over rows meets the other lanes on the way. Forward:
//   batch_statistics: x -> (2, C) f32, mean and biased variance of the lane;
//   gather_lanes: (2, C) -> (L, 2, C), every lane's; batch_norm with these.
// Backward, with the same formulas and M rows of all lanes:
//   batch_norm_sums: inputs as batch_norm_backward; outputs sums (2, C) f32 of g and of g xhat,
//   d_delta, d_gamma, d_beta, d_running_mean, d_running_variance;
//   gather_lanes: sums -> (L, 2, C); batch_norm_input_gradient: the inputs again, d_delta in place
//   of d_y (and no y) where there is one, and all sums -> d_x.

#include <cstdint>
#include <string>

#include "runtime/graph/activation.h"
#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct BatchNormAttributes {
  float epsilon = 1e-5f;
  Activation activation = Activation::kNone;  // or kRelu
  // Training: statistics of all lanes together, not of each one's batch.
  bool synchronised = false;
  int64_t lanes = 1;  // then, of the run
};

namespace ops {

struct BatchNormParameters {
  TensorId gamma, beta, running_mean, running_variance;  // (C) each
};
// activation((x - mean) / sqrt(variance + epsilon) * gamma + beta + delta) by channel: in training
// with mean and variance of this lane's batch, else with the running ones. delta may be kNoTensor.
TensorId batch_norm(GraphBuilder& builder,
                    const std::string& name,
                    TensorId x,
                    TensorId delta,
                    const BatchNormParameters& parameters,
                    const BatchNormAttributes& attributes);

}  // namespace ops
}  // namespace lockstep
