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

class GraphBuilder;

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

template <typename T>
struct Conv2dForward {
  Conv2dShape shape;
  Activation activation;
  const T* x;            // (N, H, W, I)
  const T* weight;       // (O, KH, KW, I/G)
  const T* bias;         // (O) or null
  T* y;                  // (N, OH, OW, O)
  std::byte* workspace;  // as the implementation needs

  static Conv2dForward of(const OpCall& op) {
    const auto& attributes = op.attributes<Conv2dAttributes>();
    return {.shape = conv2d_shape(
                op.input_shape(Conv2dIn::kX), op.input_shape(Conv2dIn::kWeight), attributes),
            .activation = attributes.activation,
            .x = op.input<T>(Conv2dIn::kX),
            .weight = op.input<T>(Conv2dIn::kWeight),
            .bias = op.input<T>(Conv2dIn::kBias),
            .y = op.output<T>(Conv2dOut::kY),
            .workspace = op.workspace()};
  }
};

template <typename T>
struct Conv2dBackward {
  Conv2dShape shape;
  bool accumulate_weight, accumulate_bias;
  const T* d_y;          // (N, OH, OW, O)
  const T* x;            // (N, H, W, I)
  const T* weight;       // (O, KH, KW, I/G)
  T* d_x;                // (N, H, W, I) or null; pixels that no output sees get 0
  Wide<T>* d_weight;     // (O, KH, KW, I/G) or null
  Wide<T>* d_bias;       // (O) or null
  std::byte* workspace;  // as the implementation needs

  static Conv2dBackward of(const OpCall& op) {
    const auto& attributes = op.attributes<Conv2dBackwardAttributes>();
    return {.shape = conv2d_shape(op.input_shape(Conv2dBackwardIn::kX),
                                  op.input_shape(Conv2dBackwardIn::kWeight),
                                  attributes.forward),
            .accumulate_weight = attributes.accumulate_weight,
            .accumulate_bias = attributes.accumulate_bias,
            .d_y = op.input<T>(Conv2dBackwardIn::kDY),
            .x = op.input<T>(Conv2dBackwardIn::kX),
            .weight = op.input<T>(Conv2dBackwardIn::kWeight),
            .d_x = op.output<T>(Conv2dBackwardOut::kDX),
            .d_weight = op.output<Wide<T>>(Conv2dBackwardOut::kDWeight),
            .d_bias = op.output<Wide<T>>(Conv2dBackwardOut::kDBias),
            .workspace = op.workspace()};
  }
};

template <typename T>
struct Conv2dBatchNormForward {
  Conv2dShape shape;
  float epsilon;
  Activation activation;                                    // of the norm
  const T* x;                                               // (N, H, W, I)
  const T* weight;                                          // (O, KH, KW, I/G)
  const T* bias;                                            // (O) or null
  const T *gamma, *beta, *running_mean, *running_variance;  // (O)
  const T* delta;                                           // (N, OH, OW, O) or null
  T* y;                                                     // (N, OH, OW, O)
  std::byte* workspace;                                     // as the implementation needs

  static Conv2dBatchNormForward of(const OpCall& op) {
    const auto& attributes = op.attributes<Conv2dBatchNormAttributes>();
    return {.shape = conv2d_shape(op.input_shape(Conv2dBatchNormIn::kX),
                                  op.input_shape(Conv2dBatchNormIn::kWeight),
                                  attributes.conv),
            .epsilon = attributes.norm.epsilon,
            .activation = attributes.norm.activation,
            .x = op.input<T>(Conv2dBatchNormIn::kX),
            .weight = op.input<T>(Conv2dBatchNormIn::kWeight),
            .bias = op.input<T>(Conv2dBatchNormIn::kBias),
            .gamma = op.input<T>(Conv2dBatchNormIn::kGamma),
            .beta = op.input<T>(Conv2dBatchNormIn::kBeta),
            .running_mean = op.input<T>(Conv2dBatchNormIn::kRunningMean),
            .running_variance = op.input<T>(Conv2dBatchNormIn::kRunningVariance),
            .delta = op.input<T>(Conv2dBatchNormIn::kDelta),
            .y = op.output<T>(Conv2dBatchNormOut::kY),
            .workspace = op.workspace()};
  }
};

}  // namespace lockstep::graph
