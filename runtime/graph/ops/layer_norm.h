#pragma once
// layer_norm: sum = x + delta; y = (sum - mean) * rstd * gamma + beta over the last dimension.
//   inputs  x (..., C), delta (..., C) or none, gamma (C), beta (C) or none
//   outputs y (..., C), sum (..., C) or none where there is no delta, mean (rows), rstd (rows)
// layer_norm_backward: d_sum = gradient through the norm + d_residual; also d_gamma, d_beta (+)=.
//   inputs  d_y, d_residual or none (the gradient that reaches `sum` from elsewhere), sum (x where
//   no delta), gamma, mean, rstd outputs d_sum (the gradient of both x and delta), d_gamma, d_beta or
//   none
// A parameter of a norm is used once in a graph, so its gradient is always overwritten.

#include <cstdint>
#include <string>
#include <utility>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct LayerNormAttributes {
  float epsilon = 1e-5f;
};

namespace ops {

// sum = x + delta, x (..., C) itself where delta is kNoTensor; returns {sum, its rows normalised,
// with gamma and beta (C)}. beta may be kNoTensor.
std::pair<TensorId, TensorId> layer_norm(GraphBuilder& builder,
                                         const std::string& name,
                                         TensorId x,
                                         TensorId delta,
                                         TensorId gamma,
                                         TensorId beta);

}  // namespace ops
}  // namespace lockstep
