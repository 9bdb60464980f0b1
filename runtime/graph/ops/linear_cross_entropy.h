#pragma once
// Three ops on the last linear layer of a language model. They compute its logits in chunks of
// rows, so that the logits are never in memory as a whole.
//
// linear_cross_entropy: softmax_cross_entropy of the logits. For each chunk, in order:
//   logits = x weight^T + bias; loss and gradient g of the logits as in softmax_cross_entropy.h;
//   d_weight (+)= g^T x, d_bias (+)= column sums of g, from the second chunk on +=; d_x = g weight
// Without a bias, the op has three inputs and no d_bias. If weight and bias are padded with zeros
// (padded_head.h), so are d_weight and d_bias.
// LaneContext::mix is for images: it must be 1 here.
// A loss is the root of differentiation and has no backward op: the gradients are computed in the
// forward pass.
//
// sequence_log_prob: the log probability of each sequence's targets,
//   sums[n] = sum over t, with targets[n, t] >= 0, of log softmax(logits[n, t])[targets[n, t]]
// All sequences count, whatever LaneContext::valid_rows is.
// sequence_log_prob_backward: computes the logits again. Its chunks are those of
// linear_cross_entropy, but the gradient of a row's logits is
//   g = (onehot(target) - softmax(logits)) d_sums[n]
// d_weight and d_bias are added to what is there if the attributes say so.

#include <algorithm>
#include <cstdint>

#include "runtime/graph/op_call.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"

namespace lockstep::graph {

// Operands of all three ops, which begin as those of every loss. linear_cross_entropy has
// statistics and, in training, gradients; sequence_log_prob has sums; its backward op has d_sums
// and gradients.
enum class LinearCrossEntropyIn : InputIndex { kX, kTargets, kWeight, kBias, kDSums };
enum class LinearCrossEntropyOut : OutputIndex {
  kStatistics,
  kDX,
  kDWeight,
  kDBias,
  kSums = kStatistics
};

struct LinearCrossEntropyAttributes {
  float label_smoothing = 0;       // in [0, 1)
  int64_t rows = 1;                // of a chunk; the last one may have fewer
  int64_t stride = 0;              // elements from row to row of the logits, at least N
  bool accumulate_weight = false;  // d_weight += instead of =
  bool accumulate_bias = false;
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

// x (..., K), targets (..., T) i32, weight (V, K) and bias (V) or kNoTensor, both parameters. The
// result is f32 and has the shape `sums`, with an element for each T rows of x.
TensorId sequence_log_prob(GraphBuilder& builder,
                           const std::string& name,
                           TensorId x,
                           TensorId weight,
                           TensorId bias,
                           TensorId targets,
                           const Shape& sums,
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
  bool is_loss = call.kind() == OpKind::kLinearCrossEntropy;
  double* statistics =
      is_loss ? call.output<double>(LinearCrossEntropyOut::kStatistics) : nullptr;     // (4)
  int64_t sequence_rows = call.input_shape(LinearCrossEntropyIn::kTargets).columns();  // T
  Wide<T>* sums =
      is_loss ? nullptr : call.output<Wide<T>>(LinearCrossEntropyOut::kSums);  // (M / T)
  const Wide<T>* d_sums = call.input<Wide<T>>(LinearCrossEntropyIn::kDSums);   // (M / T)
  // (M), of each row's loss: -d_sums of its sequence. Set by implementations if there are d_sums.
  const Wide<T>* gradient_scales = nullptr;
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
            .first_row = is_loss ? first : -shape.rows,  // all rows of sequences count
            .logits = logits,
            .targets = targets + first,
            .gradient = d_x == nullptr ? nullptr : logits,
            .gradient_scales = gradient_scales == nullptr ? nullptr : gradient_scales + first,
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
            .accumulate_weight = attributes.accumulate_weight || chunk > 0,
            .accumulate_bias = attributes.accumulate_bias || chunk > 0,
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
