#pragma once
// Fuses forward ops. Networks that are described layer by layer have separate ops for what built-in
// model families compute with one.

#include "runtime/graph/graph.h"

namespace lockstep::graph {

// To be called before a training graph is differentiated. The graph computes the same result:
// - an activation that is the only reader of a linear layer's or convolution's output becomes part
//   of it, and so does a ReLU that is the only reader of a batch norm's;
// - a sum that is the only reader of a batch norm's output is computed by it, as its delta;
// - a sum whose first reader is a norm is computed by the norm, as x + delta;
// - columns that are split from a tensor and concatenated again in order are that tensor;
// - consecutive reshapes become one, or none if they restore the extents, or if a linear layer
//   reads the same rows;
// - ops that nothing reads are dropped (unread_ops.h).
void fuse_forward(Graph& graph);

}  // namespace lockstep::graph
