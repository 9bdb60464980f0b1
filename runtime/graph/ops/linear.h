#pragma once
// linear: y = activation(x weight^T + bias).
// x (M, ...) with K elements per row is read as (M, K): rows of a dense tensor need not be
// flattened. pre is the value before the activation, only in training and only if the activation's
// gradient needs it.
// linear_backward: d_x = d_y weight, d_weight (+)= d_y^T x, d_bias (+)= column sums of d_y. If x is
// the output of an activation, d_x may be the gradient of that activation's input: multiplied by
// f'(saved), as in activation_backward. d_y is the gradient of the value before the layer's own
// activation. Each output may be absent, d_weight if the weight is frozen; then x is absent, too.
// If weight and bias are padded with zeros (padded_head.h), so are y, d_weight and d_bias as far as
// rows of y and d_y have room. The padding of d_y must be 0.

#include <algorithm>
#include <cstdint>
#include <string>

#include "runtime/graph/activation.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

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
  const OpCall& call = OpCall::none();
  LinearShape shape =
      LinearShape::of(call.input_shape(LinearIn::kX), call.input_shape(LinearIn::kWeight));
  // elements from row to row of y: more than N if logits are padded
  int64_t stride = call.output_stride(LinearOut::kY);
  // N, with the padding that both the weight and y have
  int64_t padded_outputs = std::min(stride, call.input_rows(LinearIn::kWeight));
  Activation activation = call.attributes<LinearAttributes>().activation;
  const T* x = call.input<T>(LinearIn::kX);            // (M, K)
  const T* weight = call.input<T>(LinearIn::kWeight);  // (N, K)
  const T* bias = call.input<T>(LinearIn::kBias);      // (N) or null
  T* y = call.output<T>(LinearOut::kY);                // (M, N)
  T* pre = call.output<T>(LinearOut::kPre);            // (M, N) or null: x weight^T + bias
  std::byte* workspace = call.workspace();             // as the implementation needs
};

template <typename T>
struct LinearBackward {
  const OpCall& call = OpCall::none();
  LinearShape shape = LinearShape::of_result(call.input_shape(LinearBackwardIn::kDY),
                                             call.input_shape(LinearBackwardIn::kWeight));
  int64_t stride = call.input_stride(LinearBackwardIn::kDY);  // elements from row to row of d_y
  // N, with the padding that both the weight and d_y have
  int64_t padded_outputs = std::min(stride, call.input_rows(LinearBackwardIn::kWeight));
  bool accumulate_weight = call.attributes<LinearBackwardAttributes>().accumulate_weight;
  bool accumulate_bias = call.attributes<LinearBackwardAttributes>().accumulate_bias;
  Activation input_activation = call.attributes<LinearBackwardAttributes>().input_activation;
  const T* d_y = call.input<T>(LinearBackwardIn::kDY);                    // (M, N)
  const T* x = call.input<T>(LinearBackwardIn::kX);                       // (M, K) or null
  const T* weight = call.input<T>(LinearBackwardIn::kWeight);             // (N, K)
  const T* saved = call.input<T>(LinearBackwardIn::kSaved);               // (M, K) or null
  T* d_x = call.output<T>(LinearBackwardOut::kDX);                        // (M, K) or null
  Wide<T>* d_weight = call.output<Wide<T>>(LinearBackwardOut::kDWeight);  // (N, K) or null
  Wide<T>* d_bias = call.output<Wide<T>>(LinearBackwardOut::kDBias);      // (N) or null
  std::byte* workspace = call.workspace();  // as the implementation needs
};

}  // namespace lockstep::graph
