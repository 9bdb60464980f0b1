// Linear layers by the products of matmul/.
#include "runtime/graph/ops/linear.h"

#include "runtime/base/threads.h"
#include "runtime/cpu/ops/activation.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/linear_kernels.h"

namespace lockstep::cpu {
namespace {

bool uses_bf16x3(const graph::OpCall& op) { return op.bf16x3(); }

template <const LinearKernels& kKernels>
size_t linear_workspace(const graph::OpCall& op) {
  const graph::LinearShape shape = op.kind() == graph::OpKind::kLinear
                                       ? graph::LinearForward<float>{op}.shape
                                       : graph::LinearBackward<float>{op}.shape;
  return static_cast<size_t>(kKernels.workspace_bytes(shape, compute_threads()));
}

template <const LinearKernels& kKernels>
void run_linear(const graph::LinearForward<float>& op) {
  kKernels.forward({.shape = op.shape,
                    .x = op.x,
                    .w = op.weight,
                    .epilogue = {.bias = op.bias, .activation = op.activation},
                    .pre = op.pre,
                    .y = op.y},
                   op.workspace);
}

template <const LinearKernels& kKernels>
void run_linear_backward(const graph::LinearBackward<float>& op) {
  if (op.d_x != nullptr) {
    kKernels.backward_input(op);
    if (op.saved != nullptr)
      activation_backward({.activation = op.input_activation,
                           .n = op.shape.rows * op.shape.inputs,
                           .d_y = op.d_x,
                           .saved = op.saved,
                           .d_x = op.d_x});
  }
  if (op.d_weight != nullptr) kKernels.backward_weight(op);
  if (op.d_bias != nullptr) linear_backward_bias(op);
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_linear<kLinearBf16x3>, linear_workspace<kLinearBf16x3>, uses_bf16x3>(
        graph::OpKind::kLinear, "bf16x3"),
    exec::row<run_linear<kLinear>, linear_workspace<kLinear>>(graph::OpKind::kLinear, "gemm"),
    exec::row<run_linear_backward<kLinearBf16x3>, linear_workspace<kLinearBf16x3>, uses_bf16x3>(
        graph::OpKind::kLinearBackward, "bf16x3"),
    exec::row<run_linear_backward<kLinear>, linear_workspace<kLinear>>(
        graph::OpKind::kLinearBackward, "gemm"),
};

}  // namespace

constinit const exec::Implementations kCpuLinear = kRows;

}  // namespace lockstep::cpu
