#pragma once
// Forward ops that a network whose layers come one by one has apart, and that families of models have
// as one.

#include "runtime/graph/graph.h"

namespace lockstep {

// Before a training graph is differentiated:
// - an activation that alone reads what a linear layer or a convolution gives becomes part of it;
// - a sum that a norm reads before anything else is computed by it, as x + delta;
// - columns of a tensor that are cut apart and put together again as they were are that tensor;
// - reshapes one after the other are one, or none where the extents come back, or where a linear layer
//   reads the same rows;
// - ops that nothing reads are left out (unread_ops.h).
// The graph computes the same.
void fuse_forward(Graph& graph);

}  // namespace lockstep
