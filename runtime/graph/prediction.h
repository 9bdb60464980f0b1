#pragma once
// What a loss judges.

#include "runtime/graph/graph.h"

namespace lockstep {

// The prediction of a graph that ends in a loss, its first input, or of the first of several: there
// when the last op has run. kNoTensor where the loss has parameters of its own, and so computes it in
// parts.
inline TensorId prediction_of(const Graph& graph) {
  const Op& last = graph.ops[graph.forward_ops - 1];
  const bool ends_in_loss = !last.outputs.empty() && last.outputs[0] == graph.result &&
                            graph[graph.result].dtype == DType::kF64;
  if (last.kind == OpKind::kTotalLoss) return last.inputs[0];
  return ends_in_loss && last.inputs.size() == 2 ? last.inputs[0] : kNoTensor;
}

}  // namespace lockstep
