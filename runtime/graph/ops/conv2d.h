#pragma once
// conv2d: y = activation(conv(x, weight) + bias), each group of outputs over its own inputs.
//   inputs  x (N, H, W, I), weight (O, KH, KW, I / groups), bias (O) or none
//   outputs y (N, OH, OW, O)
// conv2d_backward: d_x = transposed conv of d_y, d_weight (+)= correlation of x and d_y, d_bias
// (+)= sums of d_y.
//   inputs  d_y (N, OH, OW, O) of the value before the activation, x, weight
//   outputs d_x or none, d_weight, d_bias or none
// conv2d_batch_norm: batch_norm, with its running statistics, of conv(x, weight) + bias, which is
// stored nowhere. Made of the two by fuse_batch_norms().
//   inputs  x (N, H, W, I), weight (O, KH, KW, I / groups), bias (O) or none, the norm's gamma (O),
//   beta (O), running_mean (O), running_variance (O), and delta (N, OH, OW, O) or none
//   outputs y (N, OH, OW, O)

#include <cstdint>
#include <string>

#include "runtime/graph/activation.h"
#include "runtime/graph/extent2d.h"
#include "runtime/graph/op_call.h"
#include "runtime/graph/ops/batch_norm.h"

namespace lockstep {

class GraphBuilder;

struct Conv2dAttributes {
  Extent2d stride;
  Extent2d padding{0, 0};  // zeros on each side
  Extent2d dilation;
  int64_t groups = 1;
  Activation activation = Activation::kNone;  // one that does not save its input
};
struct Conv2dBackwardAttributes {
  Conv2dAttributes forward;
  bool accumulate_weight = false;  // d_weight += instead of =
  bool accumulate_bias = false;
};
struct Conv2dBatchNormAttributes {
  Conv2dAttributes conv;  // without an activation
  BatchNormAttributes norm;
};

namespace ops {

// activation(conv(x (N, H, W, I), weight (O, KH, KW, I / groups)) + bias (O)) -> (N, OH, OW, O).
// bias may be kNoTensor.
TensorId conv2d(GraphBuilder& builder,
                const std::string& name,
                TensorId x,
                TensorId weight,
                TensorId bias,
                const Conv2dAttributes& attributes);

}  // namespace ops
}  // namespace lockstep
