#pragma once
// The linear layer y = activation(x w^T + bias) and its gradients. The products are those of
// gemm.h: every output is one chain of fused multiply-adds in increasing order of the reduction
// index, so its bits depend only on its operands.

#include <cstdint>

#include "runtime/cpu/matmul/epilogue.h"
#include "runtime/cpu/matmul/gemm.h"
#include "runtime/graph/ops/linear.h"

namespace lockstep::cpu {

// Returns the scratch memory, in bytes, that any function below needs for this shape on `threads`
// threads if results store T. `workspace` must be aligned to 64 bytes; its contents are
// overwritten.
template <typename T = float>
int64_t linear_workspace_bytes(const graph::LinearShape& shape, int threads);

// A product as in the forward pass of a linear layer, or of a convolution that amounts to one.
// T: float, or BFloat16, to which results are rounded once.
template <typename T>
struct LinearProduct {
  graph::LinearShape shape;
  GemmOperand x;         // (M, K)
  GemmOperand w;         // (N, K), which may be stored transposed
  Epilogue<T> epilogue;  // applied to x w^T, whose columns are the N outputs
  T* pre = nullptr;      // (M, N): receives x w^T + bias; or null
  T* y;                  // (M, N); overlaps nothing
  // (M, N) or null. If set, y is a gradient, and is multiplied by the derivative of the activation
  // that wrote the layer's x.
  const T* saved = nullptr;
  Activation saved_activation = Activation::kNone;

  // Whether y is anything but the sums.
  bool finishes() const { return !epilogue.empty() || pre != nullptr || saved != nullptr; }
};
template <typename T>
void linear_forward(const LinearProduct<T>& op, void* workspace);

// Finishes some rows and columns of y, which hold x w^T.
void finish_sums(const LinearProduct<float>& op, Range rows, Range columns);

// These write one output of LinearBackward each: d_weight, which needs the op's workspace, and
// d_bias (summed from the first row on). The rows of d_y must not be padded. The gradient of x is a
// product like the forward pass, with inputs and outputs exchanged: linear_input_gradient().
template <typename T>
LinearProduct<T> linear_input_gradient(const graph::LinearBackward<T>& op) {
  const auto [rows, inputs, outputs] = op.shape;
  return {.shape = {rows, outputs, inputs},
          .x = {op.d_y, outputs},
          .w = {op.weight, inputs, /*transposed=*/true},
          .epilogue = {},
          .y = op.d_x,
          .saved = op.saved,
          .saved_activation = op.input_activation};
}
void linear_backward_weight(const graph::LinearBackward<float>& op);
template <typename T>
void linear_backward_bias(const graph::LinearBackward<T>& op);

// The product that linear_backward_weight() computes.
template <typename T>
Gemm product_for_weight(const graph::LinearBackward<T>& op);

}  // namespace lockstep::cpu
