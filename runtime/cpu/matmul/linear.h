#pragma once
// The linear layer y = activation(x w^T + bias) and its gradients. The products are those of
// gemm.h: every output is one chain of fused multiply-adds in increasing order of the reduction
// index, so that its bits depend on nothing but its operands.

#include <cstdint>

#include "runtime/cpu/matmul/epilogue.h"

namespace lockstep::cpu {

// The sizes of a linear layer: M rows (samples or tokens), K inputs, N outputs.
struct LinearShape {
  int64_t rows, inputs, outputs;
};

// Scratch memory for any of the functions below on this shape with so many threads. `workspace`
// must be aligned to 64 bytes; its contents are lost.
int64_t linear_workspace_bytes(const LinearShape& shape, int threads);

struct LinearForward {
  LinearShape shape;
  const float* x;     // (M, K)
  const float* w;     // (N, K)
  Epilogue epilogue;  // of the sums x w^T, whose columns are the N outputs
  float* pre;         // (M, N): receives x w^T + bias; or null
  float* y;           // (M, N); overlaps nothing
};
void linear_forward(const LinearForward& op, void* workspace);

// d_x = d_pre w.
void linear_backward_input(const LinearShape& shape,
                           const float* d_pre,  // (M, N)
                           const float* w,      // (N, K)
                           float* d_x,          // (M, K)
                           void* workspace);

// d_w = d_pre^T x, or d_w += when accumulating.
void linear_backward_weight(const LinearShape& shape,
                            const float* d_pre,  // (M, N)
                            const float* x,      // (M, K)
                            float* d_w,          // (N, K)
                            bool accumulate,
                            void* workspace);

// d_b = the sums over the rows of d_pre, first row first; or d_b += them, one row after the other.
void linear_backward_bias(const LinearShape& shape,
                          const float* d_pre,  // (M, N)
                          float* d_b,          // (N)
                          bool accumulate);

}  // namespace lockstep::cpu
