#pragma once
// dropout: y = x * keep / (1 - p), keep drawn from the counter-based stream (seed, step, lane, this
// dropout's number, element).
//   inputs x; outputs y
// dropout_backward: the same mask, drawn again, applied to the gradient. inputs d_y; outputs d_x

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct DropoutAttributes {
  float probability = 0;
  uint32_t stream = 0;  // number of this dropout in the graph: part of the random stream's purpose
};

namespace ops {

// Inverted dropout; returns x itself when probability is 0 or the graph is not for training.
TensorId dropout(GraphBuilder& builder, const std::string& name, TensorId x, float probability);

}  // namespace ops
}  // namespace lockstep
