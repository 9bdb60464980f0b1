#pragma once
// binary_cross_entropy (on logits) and mean_squared_error: losses of each output by itself.
//   inputs  prediction (rows, O), target: probability (rows, O) | value (rows, O), f32
//   outputs as of softmax_cross_entropy

#include <cstdint>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

namespace ops {

// End a training or evaluation graph.
void binary_cross_entropy(GraphBuilder& builder, TensorId logits, TensorId targets);
void mean_squared_error(GraphBuilder& builder, TensorId predictions, TensorId targets);

}  // namespace ops
}  // namespace lockstep
