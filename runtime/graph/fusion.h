#pragma once
// Ops that are done as part of another one.

#include "runtime/graph/graph.h"

namespace lockstep {

// A gradient that a linear layer's backward pass makes, and that only an activation's backward pass
// reads, is multiplied by the activation's derivative where it is made: the two ops become one
// linear_backward with an input_activation. Same arithmetic. Where a device has no such product,
// its launcher does the two steps in place.
void fuse_activation_backward(Graph& graph);

}  // namespace lockstep
