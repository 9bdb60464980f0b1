#pragma once
// Two-dimensional convolutions of NHWC images and their gradients on the GPU without a library: for
// shapes for which cuDNN has no deterministic engine, and for machines without cuDNN. The element
// type T is float, BFloat16 or Float16. Products and sums are in float, in an order that depends on
// the shape alone. Padding counts as zeros. Shapes must satisfy conv2d_supports() of plan/conv2d.h.

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/plan/conv2d.h"
#include "runtime/cuda/stream.h"
#include "runtime/graph/ops/conv2d.h"

namespace lockstep::cuda {

// y = conv(x, weight) + bias, without the activation.
template <typename T>
void conv2d_forward(const graph::Conv2dForward<T>& op, Stream stream);

// Computes d_x.
template <typename T>
void conv2d_backward_input(const graph::Conv2dBackward<T>& op, Stream stream);

// Computes d_weight; the workspace has conv2d_workspace_bytes(op.shape).
template <typename T>
void conv2d_backward_weight(const graph::Conv2dBackward<T>& op, Stream stream);

// y += the bias of its channel.
template <typename T>
void add_bias(const graph::Conv2dForward<T>& op, Stream stream);

}  // namespace lockstep::cuda
