#pragma once
// Two-dimensional convolutions of NHWC images and their gradients. Tensors store T, float or
// BFloat16; sums are floats, which are rounded to T once.
//
// Every output is a chain of fused multiply-adds in a fixed order: over the kernel's rows, its
// columns and the channels (forward and gradient of the input), or over the images, their rows and
// their columns (gradient of the weights). 3x3 kernels with stride 1 and enough channels use
// Winograd's transforms (conv2d_winograd.h), whose sums also have a fixed order and about the same
// accuracy. Hence the bits depend only on the shape and the operands: not on threads, blocking or
// the instruction set (see gemm.h), nor on the other images of the batch. Padding counts as zeros.

#include <cstdint>

#include "runtime/cpu/matmul/epilogue.h"
#include "runtime/graph/ops/conv2d.h"

namespace lockstep::cpu {

// Returns the scratch memory, in bytes, that any function below needs for this shape on `threads`
// threads; the same on every machine. `workspace` must be aligned to 64 bytes and have the size for
// compute_threads(). Its contents are overwritten. Nothing else is allocated.
template <typename T = float>
int64_t conv2d_workspace_bytes(const graph::Conv2dShape& shape, int threads);
// The same for conv2d_forward() alone.
template <typename T = float>
int64_t conv2d_forward_workspace_bytes(const graph::Conv2dShape& shape, int threads);

// The forward pass, with an optional epilogue (bias, batch norm, residual, activation).
template <typename T>
struct Conv2dProduct {
  graph::Conv2dShape shape;
  const T* x;            // (N, H, W, I)
  const T* w;            // (O, KH, KW, I/G)
  Epilogue<T> epilogue;  // applied to conv(x, w), whose columns are the O outputs
  T* y;                  // (N, OH, OW, O); overlaps nothing
};
template <typename T>
void conv2d_forward(const Conv2dProduct<T>& op, void* workspace);

// These write the op's d_x, d_weight and d_bias, respectively. All three use the op's workspace.
template <typename T>
void conv2d_backward_input(const graph::Conv2dBackward<T>& op);
template <typename T>
void conv2d_backward_weight(const graph::Conv2dBackward<T>& op);
template <typename T>
void conv2d_backward_bias(const graph::Conv2dBackward<T>& op);

}  // namespace lockstep::cpu
