#pragma once
// The prediction that a loss compares with the target.

#include "runtime/graph/graph.h"
#include "runtime/graph/ops/total_loss.h"

namespace lockstep::graph {

// The prediction of a graph that ends in a loss: the first input of the loss, or of the first of
// several losses. It still exists when the last op has run. kNoTensor if the loss has parameters of
// its own, because it then computes its prediction in parts.
inline TensorId prediction_of(const Graph& graph) {
  const Op& last = graph.ops[graph.forward_ops - 1];
  const bool ends_in_loss = last.outputs[LossOut::kStatistics] == graph.result &&
                            graph[graph.result].dtype == DType::kF64;
  if (last.kind == OpKind::kTotalLoss) return last.inputs[TotalLossIn::kPrediction];
  return ends_in_loss && last.inputs.size() == 2 ? last.inputs[LossIn::kPrediction] : kNoTensor;
}

}  // namespace lockstep::graph
