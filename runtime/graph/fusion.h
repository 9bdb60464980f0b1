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

// If a batch norm's backward pass reads a sum of two gradients, as it does if a residual block's
// output has two readers, it reads the two instead and adds them itself, rounded as the sum was. A
// norm that passes its d_y on to delta as it is writes the sum there, where others read it. The
// arithmetic does not change. A sum that something else needs before the norm stays.
void fuse_gradient_sums(Graph& graph);

// Whether a device can run an op of a graph.
using Supports = std::function<bool(const Graph&, const Op&)>;

// In a graph that only runs forward: if a convolution's output is read only by a batch_norm, as its
// x, the two become one conv2d_batch_norm at the position of the norm. So the activation does not
// go through memory in between. The arithmetic does not change. A training graph stays as it is,
// and so does a pair whose fused op `supports` rejects.
void fuse_batch_norms(Graph& graph, const Supports& supports);

// In a training graph: a batch_norm with delta and ReLU saves which elements of y are above 0, one
// bit each, and its backward pass reads these bits in place of y. The arithmetic does not change.
// `supports` rejects such ops on devices that have no kernels for them.
void save_relu_masks(Graph& graph, const Supports& supports);

}  // namespace lockstep::graph
