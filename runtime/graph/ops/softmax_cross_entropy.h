#pragma once
// softmax_cross_entropy, as PyTorch defines it: for p = softmax(x) and smoothing s
//   loss = -(1 - s) log p[target] - s / classes * sum_v log p[v]
//   gradient = (p - (1 - s) onehot(target) - s / classes) * LaneContext::gradient_scale
// With weights w of the classes, whose sum is W, and one target:
//   loss = -(1 - s) w[target] log p[target] - s / classes * sum_v w[v] log p[v]
//   gradient = (p ((1 - s) w[target] + s W / classes) - (1 - s) w[target] onehot(target)
//               - s w / classes) * LaneContext::gradient_scale
// Operands: LossIn and LossOut (operands.h). The statistics are: sum of the rows' losses; number of
// rows counted or, with weights, sum of their targets' weights; rows predicted correctly; in
// evaluation (otherwise 0) rows whose target is among the five largest logits. In training the
// gradient of the logits overwrites them. A target is -1 or in [0, classes).
// A row is not counted and has gradient 0 if its target is -1, or if its index is
// LaneContext::valid_rows or more. A row is correct if the first of its largest logits is the
// target's: among equal logits, the first one counts as larger.
// If LaneContext::mix is below 1, row i of the n = min(rows, valid_rows) has two targets: log
// p[target] and onehot(target) are mix times those of its own plus 1 - mix times those of row n - 1
// - i, unless the latter is -1. Correctness depends only on its own target.
// A loss is the root of differentiation and has no backward op: the gradient is computed in the
// forward pass.

#include <cstdint>
#include <numeric>
#include <vector>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

struct SoftmaxCrossEntropyAttributes {
  float label_smoothing = 0;     // in [0, 1)
  std::vector<float> weights{};  // (classes) above 0, or none

  const float* weights_or_null() const { return weights.empty() ? nullptr : weights.data(); }
  double weight_sum() const { return std::accumulate(weights.begin(), weights.end(), 0.0); }
};

namespace ops {

// Ends a training or evaluation graph. targets: (rows) i32. If a linear layer computes the logits,
// and no other op reads them before, their rows may become padded; then no later op may read them.
// Weights of classes are those of the builder's options.
void softmax_cross_entropy(GraphBuilder& builder,
                           TensorId logits,
                           TensorId targets,
                           float label_smoothing);

}  // namespace ops

template <typename T>
struct SoftmaxCrossEntropy {
  const OpCall& call = OpCall::none();
  int64_t rows = call.input_shape(LossIn::kPrediction).rows();
  int64_t classes = call.input_shape(LossIn::kPrediction).columns();
  // elements from row to row of the logits, at least `classes`
  int64_t stride = call.input_stride(LossIn::kPrediction);
  float label_smoothing = call.attributes<SoftmaxCrossEntropyAttributes>().label_smoothing;
  int64_t first_row = 0;  // the row that counts as row 0 for LaneContext::valid_rows
  const T* logits = call.input<T>(LossIn::kPrediction);            // (rows, stride)
  const int32_t* targets = call.input<int32_t>(LossIn::kTargets);  // (rows)
  double* statistics = call.output<double>(LossOut::kStatistics);  // (4)
  // (rows, stride), over the logits, 0 from `classes` on; null if not wanted
  T* gradient = call.output<T>(LossOut::kGradient);
  // (rows), in place of LaneContext::gradient_scale; or null
  const Wide<T>* gradient_scales = nullptr;
  // (classes) on the host until a device has its own; or null
  const float* weights = call.attributes<SoftmaxCrossEntropyAttributes>().weights_or_null();
  double weight_sum = call.attributes<SoftmaxCrossEntropyAttributes>().weight_sum();
};

}  // namespace lockstep::graph
