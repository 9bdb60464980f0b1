#pragma once
// Two-dimensional convolutions of NHWC images and their gradients on the GPU without a library: for
// shapes that cuDNN has no deterministic engine for, and machines without cuDNN. T, what is stored,
// is float, BFloat16 or Float16; products and sums are in float, in an order that the shape alone
// fixes. Padding counts as zeros.

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/stream.h"
#include "runtime/graph/conv2d_shape.h"

namespace lockstep::cuda {

// Whether the functions below take the shape: numbers of pixels and of products fit in 31 bits.
bool conv2d_supports(const Conv2dShape& shape);

// y = conv(x, w) + bias.
template <typename T>
void conv2d_forward(const Conv2dShape& shape,
                    const T* x,     // (N, H, W, I)
                    const T* w,     // (O, KH, KW, I/G)
                    const T* bias,  // (O) or null
                    T* y,           // (N, OH, OW, O)
                    Stream stream);

// d_x = the gradient with respect to x; pixels that no output sees get 0.
template <typename T>
void conv2d_backward_input(const Conv2dShape& shape,
                           const T* d_y,  // (N, OH, OW, O)
                           const T* w,    // (O, KH, KW, I/G)
                           T* d_x,        // (N, H, W, I)
                           Stream stream);

// d_w = or += the gradient with respect to w.
template <typename T>
void conv2d_backward_weight(const Conv2dShape& shape,
                            const T* d_y,  // (N, OH, OW, O)
                            const T* x,    // (N, H, W, I)
                            bool accumulate,
                            float* d_w,        // (O, KH, KW, I/G)
                            float* workspace,  // conv2d_workspace_bytes(shape)
                            Stream stream);
size_t conv2d_workspace_bytes(const Conv2dShape& shape);

// y += bias of its channel.
template <typename T>
void add_bias(const T* bias,  // (channels)
              int64_t rows,
              int64_t channels,
              T* y,  // (rows, channels)
              Stream stream);

}  // namespace lockstep::cuda
