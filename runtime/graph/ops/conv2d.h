#pragma once
// conv2d: y = activation(conv(x, weight) + bias); each group of outputs reads its own inputs.
// conv2d_backward: d_x = transposed conv of d_y, d_weight (+)= correlation of x and d_y, d_bias
// (+)= sums of d_y, the gradient of the value before the activation. Each output may be absent,
// d_weight if the weight is frozen.
// conv2d_batch_norm: batch_norm, with its running statistics, of conv(x, weight) + bias, which is
// not stored. Made of two ops by fuse_batch_norms().

#include <cstdint>
#include <string>

#include "runtime/graph/activation.h"
#include "runtime/graph/conv2d_shape.h"
#include "runtime/graph/extent2d.h"
#include "runtime/graph/op_call.h"
#include "runtime/graph/ops/batch_norm.h"

namespace lockstep::graph {

enum class Conv2dIn : InputIndex { kX, kWeight, kBias };
enum class Conv2dOut : OutputIndex { kY };
enum class Conv2dBackwardIn : InputIndex { kDY, kX, kWeight };
enum class Conv2dBackwardOut : OutputIndex { kDX, kDWeight, kDBias };
enum class Conv2dBatchNormIn : InputIndex {
  kX,
  kWeight,
  kBias,
  kGamma,
  kBeta,
  kRunningMean,
  kRunningVariance,
  kDelta
};
enum class Conv2dBatchNormOut : OutputIndex { kY };

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

// For backward rules: appends the backward op, of this kind, of a convolution or a transposed one,
// and returns the gradients of its inputs. d_pre: that of its output before the activation.
OpInputs append_conv2d_backward(GradientBuilder& builder,
                                const Op& op,
                                OpKind kind,
                                TensorId d_pre);

template <typename T>
struct Conv2dForward {
  const OpCall& call = OpCall::none();
  Conv2dShape shape = conv2d_shape(call.input_shape(Conv2dIn::kX),
                                   call.input_shape(Conv2dIn::kWeight),
                                   call.attributes<Conv2dAttributes>());
  Activation activation = call.attributes<Conv2dAttributes>().activation;
  const T* x = call.input<T>(Conv2dIn::kX);            // (N, H, W, I)
  const T* weight = call.input<T>(Conv2dIn::kWeight);  // (O, KH, KW, I/G)
  const T* bias = call.input<T>(Conv2dIn::kBias);      // (O) or null
  T* y = call.output<T>(Conv2dOut::kY);                // (N, OH, OW, O)
  std::byte* workspace = call.workspace();             // as the implementation needs
};

template <typename T>
struct Conv2dBackward {
  const OpCall& call = OpCall::none();
  Conv2dShape shape = conv2d_shape(call.input_shape(Conv2dBackwardIn::kX),
                                   call.input_shape(Conv2dBackwardIn::kWeight),
                                   call.attributes<Conv2dBackwardAttributes>().forward);
  bool accumulate_weight = call.attributes<Conv2dBackwardAttributes>().accumulate_weight;
  bool accumulate_bias = call.attributes<Conv2dBackwardAttributes>().accumulate_bias;
  const T* d_y = call.input<T>(Conv2dBackwardIn::kDY);         // (N, OH, OW, O)
  const T* x = call.input<T>(Conv2dBackwardIn::kX);            // (N, H, W, I)
  const T* weight = call.input<T>(Conv2dBackwardIn::kWeight);  // (O, KH, KW, I/G)
  // (N, H, W, I) or null; pixels that no output sees get 0
  T* d_x = call.output<T>(Conv2dBackwardOut::kDX);
  // (O, KH, KW, I/G) or null
  Wide<T>* d_weight = call.output<Wide<T>>(Conv2dBackwardOut::kDWeight);
  Wide<T>* d_bias = call.output<Wide<T>>(Conv2dBackwardOut::kDBias);  // (O) or null
  std::byte* workspace = call.workspace();                            // as the implementation needs
};

template <typename T>
struct Conv2dBatchNormForward {
  const OpCall& call = OpCall::none();
  Conv2dShape shape = conv2d_shape(call.input_shape(Conv2dBatchNormIn::kX),
                                   call.input_shape(Conv2dBatchNormIn::kWeight),
                                   call.attributes<Conv2dBatchNormAttributes>().conv);
  float epsilon = call.attributes<Conv2dBatchNormAttributes>().norm.epsilon;
  // of the norm
  Activation activation = call.attributes<Conv2dBatchNormAttributes>().norm.activation;
  const T* x = call.input<T>(Conv2dBatchNormIn::kX);            // (N, H, W, I)
  const T* weight = call.input<T>(Conv2dBatchNormIn::kWeight);  // (O, KH, KW, I/G)
  const T* bias = call.input<T>(Conv2dBatchNormIn::kBias);      // (O) or null
  // (O)
  const T *gamma = call.input<T>(Conv2dBatchNormIn::kGamma),
          *beta = call.input<T>(Conv2dBatchNormIn::kBeta),
          *running_mean = call.input<T>(Conv2dBatchNormIn::kRunningMean),
          *running_variance = call.input<T>(Conv2dBatchNormIn::kRunningVariance);
  const T* delta = call.input<T>(Conv2dBatchNormIn::kDelta);  // (N, OH, OW, O) or null
  T* y = call.output<T>(Conv2dBatchNormOut::kY);              // (N, OH, OW, O)
  std::byte* workspace = call.workspace();                    // as the implementation needs
};

}  // namespace lockstep::graph
