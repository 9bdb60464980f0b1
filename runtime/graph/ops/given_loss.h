#pragma once
// given_loss: losses that the network itself computed, (rows, O); a row's loss is the mean of its O
// numbers. The gradient of each number of a counted row is 1 / O. No row counts as correct, and
// there is no prediction. Operands: LossIn::kPrediction, the losses, and LossOut (operands.h).

#include <cstdint>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

namespace ops {

// Ends a training or evaluation graph.
void given_loss(GraphBuilder& builder, TensorId losses);

}  // namespace ops

template <typename T>
struct GivenLoss {
  const OpCall& call = OpCall::none();
  int64_t rows = call.input_shape(LossIn::kPrediction).rows();
  int64_t outputs = call.input_shape(LossIn::kPrediction).columns();
  const T* losses = call.input<T>(LossIn::kPrediction);            // (rows, outputs)
  double* statistics = call.output<double>(LossOut::kStatistics);  // (4)
  // (rows, outputs), over the losses; null if not wanted. Rows that do not count get 0
  T* gradient = call.output<T>(LossOut::kGradient);
};

}  // namespace lockstep::graph
