#pragma once
// soft_cross_entropy: cross-entropy of a softmax with targets that are a probability for each
// class, as torch.nn.CrossEntropyLoss with probabilities. For p = softmax(x), targets t and
// smoothing s
//   u[v] = (1 - s) t[v] + s / classes
//   loss = -sum_v u[v] log p[v]
//   gradient = (p sum_v u[v] - u) * LaneContext::gradient_scale
// A row counts as 1, whatever the sum of its targets; not if its index is LaneContext::valid_rows
// or more. It is correct if the first of its largest logits is the class of the first of its
// largest targets. Operands: LossIn and LossOut (operands.h). The gradient may overwrite the
// logits.

#include <cstdint>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

struct SoftCrossEntropyAttributes {
  float label_smoothing = 0;  // in [0, 1)
};

namespace ops {

// Ends a training or evaluation graph. targets: (rows, classes) f32.
void soft_cross_entropy(GraphBuilder& builder,
                        TensorId logits,
                        TensorId targets,
                        float label_smoothing);

}  // namespace ops

template <typename T>
struct SoftCrossEntropy {
  const OpCall& call = OpCall::none();
  int64_t rows = call.input_shape(LossIn::kPrediction).rows();
  int64_t classes = call.input_shape(LossIn::kPrediction).columns();
  float label_smoothing = call.attributes<SoftCrossEntropyAttributes>().label_smoothing;
  const T* logits = call.input<T>(LossIn::kPrediction);            // (rows, classes)
  const Wide<T>* targets = call.input<Wide<T>>(LossIn::kTargets);  // (rows, classes)
  double* statistics = call.output<double>(LossOut::kStatistics);  // (4)
  // (rows, classes), over the logits; null if not wanted. Rows that do not count get 0
  T* gradient = call.output<T>(LossOut::kGradient);
};

}  // namespace lockstep::graph
