#pragma once
// Ops that are done as part of another one.

#include <functional>

#include "runtime/graph/graph.h"

namespace lockstep {

// A gradient that a linear layer's backward pass makes, and that only an activation's backward pass
// reads, is multiplied by the activation's derivative where it is made: the two ops become one
// linear_backward with an input_activation. Same arithmetic. Where a device has no such product,
// its launcher does the two steps in place.
void fuse_activation_backward(Graph& graph);

// Whether a device can run an op of a graph.
using Supports = std::function<bool(const Graph&, const Op&)>;

// Where a graph only runs forward, a convolution whose output nothing but a batch_norm reads, as
// its x, becomes one conv2d_batch_norm with it, in the norm's place: the activation does not go
// through memory in between. Same arithmetic. A training graph stays as it is, and so does a pair
// whose fused op `supports` refuses.
void fuse_batch_norms(Graph& graph, const Supports& supports);

}  // namespace lockstep
