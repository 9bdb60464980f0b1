#pragma once
// softmax_cross_entropy, as PyTorch defines it: for p = softmax(x) and smoothing s
//   loss = -(1 - s) log p[target] - s / classes * sum_v log p[v]
//   gradient = (p - (1 - s) onehot(target) - s / classes) * LaneContext::gradient_scale
// and with weights w of the classes, of which W is the sum, and one target
//   loss = -(1 - s) w[target] log p[target] - s / classes * sum_v w[v] log p[v]
//   gradient = (p ((1 - s) w[target] + s W / classes) - (1 - s) w[target] onehot(target)
//               - s w / classes) * LaneContext::gradient_scale
//   inputs  logits (rows, classes), target: class (rows) i32, -1 or in [0, classes)
//   outputs statistics (4) f64: sum of the rows' losses, rows counted or with weights the sum of
//           those of their targets, rows predicted correctly,
//           and in evaluation, else 0, rows whose target is among the five largest logits;
//           in training also the gradient of the logits, over them
// A row whose target is -1, or whose number is LaneContext::valid_rows or more, is not counted and
// has gradient 0. A row is correct where the first of its largest logits is the target's;
// of equal logits the first one counts as larger.
// Where LaneContext::mix is below 1, row i of the n = min(rows, valid_rows) has two targets: log
// p[target] and onehot(target) are mix times those of its own plus 1 - mix times those of row n - 1
// - i's, unless that one is -1. Whether the row is correct is a matter of its own.
// A loss is the root of differentiation and needs no backward op: the gradient comes out of the
// forward pass.

#include <cstdint>
#include <numeric>
#include <vector>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct SoftmaxCrossEntropyAttributes {
  float label_smoothing = 0;     // in [0, 1)
  std::vector<float> weights{};  // (classes) above 0, or none
};

namespace ops {

// Ends a training or evaluation graph. targets: (rows) i32. Where a linear layer computes the
// logits, their rows may become padded, unless an op before reads them, too: none may behind it.
// Classes have the weights of the builder's options.
void softmax_cross_entropy(GraphBuilder& builder,
                           TensorId logits,
                           TensorId targets,
                           float label_smoothing);

}  // namespace ops

template <typename T>
struct SoftmaxCrossEntropy {
  int64_t rows, classes;
  int64_t stride;  // elements from row to row of the logits, at least `classes`
  float label_smoothing;
  int64_t first_row;       // what LaneContext::valid_rows counts as row 0 here
  const T* logits;         // (rows, stride)
  const int32_t* targets;  // (rows)
  double* statistics;      // (4)
  T* gradient;             // (rows, stride), over the logits, 0 from `classes` on; null where none
                           // is wanted
  const float* weights = nullptr;  // (classes) on the host until a device has its own; or null
  double weight_sum = 0;

  static SoftmaxCrossEntropy of(const OpCall& op) {
    const std::vector<float>& weights = op.attributes<SoftmaxCrossEntropyAttributes>().weights;
    return {.rows = op.input_shape(0).rows(),
            .classes = op.input_shape(0).columns(),
            .stride = op.input_stride(0),
            .label_smoothing = op.attributes<SoftmaxCrossEntropyAttributes>().label_smoothing,
            .first_row = 0,
            .logits = op.input<T>(0),
            .targets = op.input<int32_t>(1),
            .statistics = op.output<double>(0),
            .gradient = op.output<T>(1),
            .weights = weights.empty() ? nullptr : weights.data(),
            .weight_sum = std::accumulate(weights.begin(), weights.end(), 0.0)};
  }
};

}  // namespace lockstep
