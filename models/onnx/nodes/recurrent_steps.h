#pragma once
// Recurrent layers without a native op, lowered step by step.

#include <utility>

#include "models/onnx/nodes/lowering/lowering.h"
#include "runtime/graph/ops/recurrent.h"

namespace lockstep::onnx {

// Whether the node is such a layer: an LSTM with peepholes or with coupled input and forget gates,
// or a GRU that applies the reset before the product (linear_before_reset 0).
bool needs_steps(const Lowering& lowering, const Node& node);

// Returns states and cells like ops::recurrent: (D, T, N, H) each; cells only for an LSTM. Of
// `inputs`, only x and the initial states are used. Throws ConfigError if there are too many steps.
std::pair<TensorId, TensorId> recurrent_in_steps(Lowering& lowering,
                                                 const Node& node,
                                                 const ops::RecurrentInputs& inputs,
                                                 const graph::RecurrentAttributes& attributes);

}  // namespace lockstep::onnx
