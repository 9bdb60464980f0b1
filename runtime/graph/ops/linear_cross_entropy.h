#pragma once
// linear_cross_entropy: the last linear layer of a language model and softmax_cross_entropy of its
// output, computed in chunks of rows, so that the logits are never in memory as a whole. For each
// chunk, in order:
//   logits = x weight^T + bias; loss and gradient g of the logits as in softmax_cross_entropy.h;
//   d_weight (+)= g^T x, d_bias (+)= column sums of g, from the second chunk on +=; d_x = g weight
// Without a bias, the op has three inputs and no d_bias. If weight and bias are padded with zeros
// (padded_head.h), so are d_weight and d_bias.
// LaneContext::mix is for images: it must be 1 here.
// A loss is the root of differentiation and has no backward op: the gradients are computed in the
// forward pass.

#include <algorithm>
#include <cstdint>

#include "runtime/graph/op_call.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"

namespace lockstep::graph {

// They begin as those of every loss.
enum class LinearCrossEntropyIn : InputIndex { kX, kTargets, kWeight, kBias };
enum class LinearCrossEntropyOut : OutputIndex { kStatistics, kDX, kDWeight, kDBias };

struct LinearCrossEntropyAttributes {
  float label_smoothing = 0;  // in [0, 1)
  int64_t rows = 1;           // of a chunk; the last one may have fewer
  int64_t stride = 0;         // elements from row to row of the logits, at least N
};

namespace ops {

// Ends a training or evaluation graph. x (..., K), targets (rows) i32, weight (N, K), bias (N) or
// kNoTensor.
void linear_cross_entropy(GraphBuilder& builder,
                          TensorId x,
                          TensorId weight,
                          TensorId bias,
                          TensorId targets,
                          float label_smoothing,
                          int64_t rows_at_a_time);

}  // namespace ops

template <typename T>
struct LinearCrossEntropy {
  const OpCall& call = OpCall::none();
  // M rows, K inputs, N classes
  LinearShape shape = LinearShape::of(call.input_shape(LinearCrossEntropyIn::kX),
                                      call.input_shape(LinearCrossEntropyIn::kWeight));
  LinearCrossEntropyAttributes attributes = call.attributes<LinearCrossEntropyAttributes>();
  // N, with the padding that both the weight and the logits have
  int64_t padded_outputs =
      std::min(attributes.stride, call.input_rows(LinearCrossEntropyIn::kWeight));
  const T* x = call.input<T>(LinearCrossEntropyIn::kX);                          // (M, K)
  const int32_t* targets = call.input<int32_t>(LinearCrossEntropyIn::kTargets);  // (M)
  const T* weight = call.input<T>(LinearCrossEntropyIn::kWeight);                // (N, K)
  const T* bias = call.input<T>(LinearCrossEntropyIn::kBias);                    // (N), or null
  double* statistics = call.output<double>(LinearCrossEntropyOut::kStatistics);  // (4)
  T* d_x = call.output<T>(LinearCrossEntropyOut::kDX);  // (M, K), or null if no gradient is wanted
  // (N, K), or null if no gradient is wanted or the weight is frozen
  Wide<T>* d_weight = call.output<Wide<T>>(LinearCrossEntropyOut::kDWeight);
  // (N), or null likewise, or if there is no bias
  Wide<T>* d_bias = call.output<Wide<T>>(LinearCrossEntropyOut::kDBias);

  int64_t chunk_rows() const { return std::min(attributes.rows, shape.rows); }
  int64_t chunks() const { return (shape.rows + chunk_rows() - 1) / chunk_rows(); }
  int64_t rows_of(int64_t chunk) const {
    return std::min(chunk_rows(), shape.rows - chunk * chunk_rows());
  }

  // The steps for one chunk, as the structs of the two ops that it stands for. `logits` (chunk
  // rows, stride) is overwritten by its gradient. Logits: T, or float.
  template <typename Logits>
  SoftmaxCrossEntropy<Logits> loss_of(int64_t chunk, Logits* logits) const {
    const int64_t first = chunk * chunk_rows();
    return {.rows = rows_of(chunk),
            .classes = shape.outputs,
            .stride = attributes.stride,
            .label_smoothing = attributes.label_smoothing,
            .first_row = first,
            .logits = logits,
            .targets = targets + first,
            .gradient = d_x == nullptr ? nullptr : logits,
            .weights = nullptr,
            .weight_sum = 0};
  }
  LinearForward<T> forward_of(int64_t chunk, T* logits, std::byte* workspace) const {
    return {.shape = {rows_of(chunk), shape.inputs, shape.outputs},
            .stride = attributes.stride,
            .padded_outputs = padded_outputs,
            .activation = Activation::kNone,
            .x = x + chunk * chunk_rows() * shape.inputs,
            .weight = weight,
            .bias = bias,
            .y = logits,
            .workspace = workspace};
  }
  LinearBackward<T> backward_of(int64_t chunk, const T* gradient, std::byte* workspace) const {
    const int64_t first = chunk * chunk_rows() * shape.inputs;
    return {.shape = {rows_of(chunk), shape.inputs, shape.outputs},
            .stride = attributes.stride,
            .padded_outputs = padded_outputs,
            .accumulate_weight = chunk > 0,
            .accumulate_bias = chunk > 0,
            .input_activation = Activation::kNone,
            .d_y = gradient,
            .x = x + first,
            .weight = weight,
            .d_x = d_x + first,
            .d_weight = d_weight,
            .d_bias = d_bias,
            .workspace = workspace};
  }
};

}  // namespace lockstep::graph
