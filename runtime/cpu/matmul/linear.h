#pragma once
// The linear layer y = activation(x w^T + bias) and its gradients. The products are those of
// gemm.h: every output is one chain of fused multiply-adds in increasing order of the reduction
// index, so that its bits depend on nothing but its operands.

#include <cstdint>

#include "runtime/cpu/matmul/epilogue.h"
#include "runtime/cpu/matmul/gemm.h"
#include "runtime/graph/ops/linear.h"

namespace lockstep::cpu {

// Scratch memory for any of the functions below on this shape with so many threads. `workspace`
// must be aligned to 64 bytes; its contents are lost.
int64_t linear_workspace_bytes(const LinearShape& shape, int threads);

// The forward pass of a linear layer, or of a convolution that is one.
struct LinearProduct {
  LinearShape shape;
  const float* x;     // (M, K)
  const float* w;     // (N, K)
  Epilogue epilogue;  // of the sums x w^T, whose columns are the N outputs
  float* pre;         // (M, N): receives x w^T + bias; or null
  float* y;           // (M, N); overlaps nothing
};
void linear_forward(const LinearProduct& op, void* workspace);

// Each writes one output of LinearBackward, whose rows of d_y are not padded: d_x, without the
// derivative of an activation; d_weight; d_bias, whose sums begin with the first row. The first two
// need its workspace.
void linear_backward_input(const LinearBackward<float>& op);
void linear_backward_weight(const LinearBackward<float>& op);
void linear_backward_bias(const LinearBackward<float>& op);

// What the first two multiply.
Gemm product_for_input(const LinearBackward<float>& op);
Gemm product_for_weight(const LinearBackward<float>& op);

}  // namespace lockstep::cpu
