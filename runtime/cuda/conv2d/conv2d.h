#pragma once
// Two-dimensional convolutions of NHWC images and their gradients on the GPU without a library: for
// shapes that cuDNN has no deterministic engine for, and machines without cuDNN. T, what is stored,
// is float, BFloat16 or Float16; products and sums are in float, in an order that the shape alone
// fixes. Padding counts as zeros. Shapes are such as conv2d_supports() of plan/conv2d.h takes.

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/plan/conv2d.h"
#include "runtime/cuda/stream.h"
#include "runtime/graph/ops/conv2d.h"

namespace lockstep::cuda {

// y = conv(x, weight) + bias, without the activation.
template <typename T>
void conv2d_forward(const Conv2dForward<T>& op, Stream stream);

// d_x.
template <typename T>
void conv2d_backward_input(const Conv2dBackward<T>& op, Stream stream);

// d_weight; the workspace has conv2d_workspace_bytes(op.shape).
template <typename T>
void conv2d_backward_weight(const Conv2dBackward<T>& op, Stream stream);

// y += the bias of its channel, for a y without it.
template <typename T>
void add_bias(const Conv2dForward<T>& op, Stream stream);

}  // namespace lockstep::cuda
