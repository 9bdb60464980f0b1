#pragma once
// Recurrent layers that no op has, step by step.

#include <utility>

#include "models/onnx/lowering/lowering.h"
#include "runtime/graph/ops/recurrent.h"

namespace lockstep::onnx {

// Whether the node, an LSTM or a GRU, is one: with peepholes, an input gate that is coupled with the forget
// gate, or a reset before the product (GRU's linear_before_reset of 0).
bool needs_steps(const Lowering& lowering, const Node& node);

// Its states and cells, as ops::recurrent has them: (D, T, N, H) each, the cells of an LSTM alone. Of the
// inputs x and the initial states count. Refuses what has too many steps.
std::pair<TensorId, TensorId> recurrent_in_steps(Lowering& lowering,
                                                 const Node& node,
                                                 const ops::RecurrentInputs& inputs,
                                                 const RecurrentAttributes& attributes);

}  // namespace lockstep::onnx
