#pragma once
// linear: y = activation(x weight^T + bias).
//   inputs  x (..., K), weight (N, K), bias (N) or none; x (M, ...) with K elements per row is read
//           as (M, K): rows of a dense tensor need not be flattened
//   outputs y (..., N), pre (..., N): the value before the activation, only in training and only
//           if the activation's gradient needs it
// linear_backward: d_x = d_y weight, d_weight (+)= d_y^T x, d_bias (+)= column sums of d_y. If x is
// the output of an activation, d_x may be the gradient of that activation's input: multiplied by
// f'(saved).
//   inputs  d_y (..., N) of the value before the activation, x or none if there is no d_weight,
//           weight, saved (..., K) or none (for input_activation, as in activation_backward)
//   outputs d_x, d_weight, d_bias: each may be absent, d_weight if the weight is frozen

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
    return {.shape = LinearShape::of(op.input_shape(0), op.input_shape(1)),
            .stride = op.output_stride(0),
            .activation = op.attributes<LinearAttributes>().activation,
            .x = op.input<T>(0),
            .weight = op.input<T>(1),
            .bias = op.input<T>(2),
            .y = op.output<T>(0),
            .pre = op.output<T>(1),
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
    return {.shape = LinearShape::of_result(op.input_shape(0), op.input_shape(2)),
            .stride = op.input_stride(0),
            .accumulate_weight = attributes.accumulate_weight,
            .accumulate_bias = attributes.accumulate_bias,
            .input_activation = attributes.input_activation,
            .d_y = op.input<T>(0),
            .x = op.input<T>(1),
            .weight = op.input<T>(2),
            .saved = op.input<T>(3),
            .d_x = op.output<T>(0),
            .d_weight = op.output<Wide<T>>(1),
            .d_bias = op.output<Wide<T>>(2),
            .workspace = op.workspace()};
  }
};

}  // namespace lockstep
