#pragma once
// linear: y = activation(x weight^T + bias).
// x (M, ...) with K elements per row is read as (M, K): rows of a dense tensor need not be
// flattened. pre is the value before the activation, only in training and only if the activation's
// gradient needs it.
// linear_backward: d_x = d_y weight, d_weight (+)= d_y^T x, d_bias (+)= column sums of d_y. If x is
// the output of an activation, d_x may be the gradient of that activation's input: multiplied by
// f'(saved), as in activation_backward. d_y is the gradient of the value before the layer's own
// activation. Each output may be absent, d_weight if the weight is frozen; then x is absent, too.

#include <cstdint>
#include <string>

#include "runtime/graph/activation.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

class GraphBuilder;

enum class LinearIn : InputIndex { kX, kWeight, kBias };
enum class LinearOut : OutputIndex { kY, kPre };
enum class LinearBackwardIn : InputIndex { kDY, kX, kWeight, kSaved };
enum class LinearBackwardOut : OutputIndex { kDX, kDWeight, kDBias };

struct LinearAttributes {
  Activation activation = Activation::kNone;
};
struct LinearBackwardAttributes {
  bool accumulate_weight = false;  // d_weight += instead of =
  bool accumulate_bias = false;
  Activation input_activation = Activation::kNone;  // its derivative multiplies d_x
};

namespace ops {

// activation(x (..., K) weight (N, K)^T + bias (N)) -> (..., N). If the builder's options give the
// layer a LoRA, its output is added before the activation. bias may be kNoTensor. If K is the
// product of all extents of x except the first, x is flattened: the output is (rows, N).
TensorId linear(GraphBuilder& builder,
                const std::string& name,
                TensorId x,
                TensorId weight,
                TensorId bias,
                Activation activation);

}  // namespace ops

// The sizes of a linear layer: M rows (samples or tokens), K inputs, N outputs.
struct LinearShape {
  int64_t rows, inputs, outputs;

  // For x, which may have to be flattened, and weight (N, K).
  static LinearShape of(const Shape& x, const Shape& weight) {
    return {x.elements() / weight[1], weight[1], weight[0]};
  }
  // From the shapes of y and weight.
  static LinearShape of_result(const Shape& y, const Shape& weight) {
    return {y.elements() / weight[0], weight[1], weight[0]};
  }
};

template <typename T>
struct LinearForward {
  LinearShape shape;
  int64_t stride;  // elements from row to row of y: more than N if logits are padded
  Activation activation;
  const T* x;            // (M, K)
  const T* weight;       // (N, K)
  const T* bias;         // (N) or null
  T* y;                  // (M, N)
  T* pre;                // (M, N) or null: x weight^T + bias
  std::byte* workspace;  // as the implementation needs

  static LinearForward of(const OpCall& op) {
    return {
        .shape = LinearShape::of(op.input_shape(LinearIn::kX), op.input_shape(LinearIn::kWeight)),
        .stride = op.output_stride(LinearOut::kY),
        .activation = op.attributes<LinearAttributes>().activation,
        .x = op.input<T>(LinearIn::kX),
        .weight = op.input<T>(LinearIn::kWeight),
        .bias = op.input<T>(LinearIn::kBias),
        .y = op.output<T>(LinearOut::kY),
        .pre = op.output<T>(LinearOut::kPre),
        .workspace = op.workspace()};
  }
};

template <typename T>
struct LinearBackward {
  LinearShape shape;
  int64_t stride;  // elements from row to row of d_y
  bool accumulate_weight, accumulate_bias;
  Activation input_activation;
  const T* d_y;          // (M, N)
  const T* x;            // (M, K) or null
  const T* weight;       // (N, K)
  const T* saved;        // (M, K) or null
  T* d_x;                // (M, K) or null
  Wide<T>* d_weight;     // (N, K) or null
  Wide<T>* d_bias;       // (N) or null
  std::byte* workspace;  // as the implementation needs

  static LinearBackward of(const OpCall& op) {
    const auto& attributes = op.attributes<LinearBackwardAttributes>();
    return {.shape = LinearShape::of_result(op.input_shape(LinearBackwardIn::kDY),
                                            op.input_shape(LinearBackwardIn::kWeight)),
            .stride = op.input_stride(LinearBackwardIn::kDY),
            .accumulate_weight = attributes.accumulate_weight,
            .accumulate_bias = attributes.accumulate_bias,
            .input_activation = attributes.input_activation,
            .d_y = op.input<T>(LinearBackwardIn::kDY),
            .x = op.input<T>(LinearBackwardIn::kX),
            .weight = op.input<T>(LinearBackwardIn::kWeight),
            .saved = op.input<T>(LinearBackwardIn::kSaved),
            .d_x = op.output<T>(LinearBackwardOut::kDX),
            .d_weight = op.output<Wide<T>>(LinearBackwardOut::kDWeight),
            .d_bias = op.output<Wide<T>>(LinearBackwardOut::kDBias),
            .workspace = op.workspace()};
  }
};

}  // namespace lockstep::graph
