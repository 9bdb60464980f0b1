#pragma once
// Fuses ops into others.

#include <functional>

#include "runtime/graph/graph.h"

namespace lockstep::graph {

// If only an activation's backward pass reads a gradient that a linear layer's backward pass
// computes, the gradient is multiplied by the activation's derivative there: the two ops become one
// linear_backward with an input_activation. The arithmetic does not change. If a device has no such
// product, its launcher does the two steps in place.
void fuse_activation_backward(Graph& graph);

// Whether a device can run an op of a graph.
using Supports = std::function<bool(const Graph&, const Op&)>;

// In a graph that only runs forward: if a convolution's output is read only by a batch_norm, as its
// x, the two become one conv2d_batch_norm at the position of the norm. So the activation does not
// go through memory in between. The arithmetic does not change. A training graph stays as it is,
// and so does a pair whose fused op `supports` rejects.
void fuse_batch_norms(Graph& graph, const Supports& supports);

}  // namespace lockstep::graph
