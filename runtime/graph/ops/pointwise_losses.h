#pragma once
// Losses of each output separately; a row's loss is their mean:
//   binary_cross_entropy, on logits: max(x, 0) - x t + log(1 + e^-|x|), which does not overflow;
//   its gradient is sigmoid(x) - t. An output is correct if x > 0 agrees with t > 0.5. With weights
//   w of two classes, loss, gradient and count are multiplied by (1 - t) w[0] + t w[1].
//   mean_squared_error: (x - t)^2; its gradient is 2 (x - t). No output counts as correct.
// A target is a probability or a value, (rows, O) f32. Operands: LossIn and LossOut (operands.h).

#include <cstdint>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

struct BinaryCrossEntropyAttributes {
  float weights[2] = {1, 1};  // of classes 0 and 1
  bool weighted = false;      // if so, there is one output
};

namespace ops {

// End a training or evaluation graph. Weights of classes are those of the builder's options.
void binary_cross_entropy(GraphBuilder& builder, TensorId logits, TensorId targets);
void mean_squared_error(GraphBuilder& builder, TensorId predictions, TensorId targets);

}  // namespace ops

template <typename T>
struct PointwiseLoss {
  const OpCall& call = OpCall::none();
  // mean_squared_error, otherwise binary_cross_entropy
  bool squared = call.kind() == OpKind::kMeanSquaredError;
  int64_t rows = call.input_shape(LossIn::kPrediction).rows();
  int64_t outputs = call.input_shape(LossIn::kPrediction).columns();
  const T* predictions = call.input<T>(LossIn::kPrediction);       // (rows, outputs)
  const Wide<T>* targets = call.input<Wide<T>>(LossIn::kTargets);  // (rows, outputs)
  double* statistics = call.output<double>(LossOut::kStatistics);  // (4)
  // (rows, outputs), over the predictions; null if not wanted. Rows that do not count get 0
  T* gradient = call.output<T>(LossOut::kGradient);
  BinaryCrossEntropyAttributes classes =
      squared ? BinaryCrossEntropyAttributes{} : call.attributes<BinaryCrossEntropyAttributes>();
};

}  // namespace lockstep::graph
