#pragma once
// linear: y = activation(x weight^T + bias).
//   inputs  x (..., K), weight (N, K), bias (N) or none; x (M, ...) with K elements a row is read
//           as (M, K): rows of a dense tensor need no work to be flattened
//   outputs y (..., N), pre (..., N): the value before the activation, only in training and only
//   where its gradient needs it
// linear_backward: d_x = d_y weight, d_weight (+)= d_y^T x, d_bias (+)= column sums of d_y. Where x
// is the output of an activation, d_x may be the gradient of that one's input: times f'(saved).
//   inputs  d_y (..., N) of the value before the activation, x, weight, saved (..., K) or none (of
//           input_activation, as in activation_backward)
//   outputs d_x or none, d_weight, d_bias or none

#include <cstdint>
#include <string>

#include "runtime/graph/activation.h"
#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct LinearAttributes {
  Activation activation = Activation::kNone;
};
struct LinearBackwardAttributes {
  bool accumulate_weight = false;  // d_weight += instead of =
  bool accumulate_bias = false;
  Activation input_activation = Activation::kNone;  // whose derivative multiplies d_x
};

namespace ops {

// activation(x (..., K) weight (N, K)^T + bias (N)) -> (..., N). bias may be kNoTensor. Where K is
// the product of all extents of x but the first, x is flattened: the output is (rows, N).
TensorId linear(GraphBuilder& builder,
                const std::string& name,
                TensorId x,
                TensorId weight,
                TensorId bias,
                Activation activation);

}  // namespace ops
}  // namespace lockstep
