// Linear layers by the products of matmul/.
#include "runtime/graph/ops/linear.h"

#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/ops/activation.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/linear_kernels.h"

namespace lockstep::cpu {
namespace {

bool uses_bf16x3(const graph::OpCall& op) { return op.bf16x3() && !stores_bf16(op); }

graph::LinearShape shape_of(const graph::OpCall& op) {
  return op.kind() == graph::OpKind::kLinear ? graph::LinearForward<float>{op}.shape
                                             : graph::LinearBackward<float>{op}.shape;
}

template <const LinearKernels& kKernels>
size_t linear_workspace(const graph::OpCall& op) {
  return static_cast<size_t>(kKernels.workspace_bytes(shape_of(op), compute_threads()));
}

// The workspace of bfloat16 ends with the bias in floats.
template <const HalfLinearKernels& kKernels>
size_t products_bytes(const graph::LinearShape& shape) {
  return static_cast<size_t>(kKernels.workspace_bytes(shape, compute_threads()));
}

template <const HalfLinearKernels& kKernels>
size_t half_workspace(const graph::OpCall& op) {
  const graph::LinearShape shape = shape_of(op);
  return products_bytes<kKernels>(shape) + static_cast<size_t>(shape.outputs) * sizeof(float);
}

size_t plain_workspace(const graph::OpCall& op) {
  return stores_bf16(op) ? half_workspace<kHalfLinear>(op) : linear_workspace<kLinear>(op);
}

template <const LinearKernels& kKernels>
void run_linear(const graph::LinearForward<float>& op) {
  kKernels.forward({.shape = op.shape,
                    .x = {op.x, op.shape.inputs},
                    .w = {op.weight, op.shape.inputs},
                    .epilogue = {.bias = op.bias, .activation = op.activation},
                    .pre = op.pre,
                    .y = op.y},
                   op.workspace);
}

template <const LinearKernels& kKernels>
void run_linear_backward(const graph::LinearBackward<float>& op) {
  if (op.d_x != nullptr) kKernels.forward(linear_input_gradient(op), op.workspace);
  if (op.d_weight != nullptr) kKernels.backward_weight(op);
  if (op.d_bias != nullptr) linear_backward_bias(op);
}

template <const HalfLinearKernels& kKernels>
void run_half_linear(const graph::LinearForward<BFloat16>& op) {
  const auto [rows, inputs, outputs] = op.shape;
  float* bias = nullptr;
  if (op.bias != nullptr) {
    bias = reinterpret_cast<float*>(op.workspace + products_bytes<kKernels>(op.shape));
    std::transform(op.bias, op.bias + outputs, bias, [](BFloat16 b) { return to_float(b); });
  }
  kKernels.forward({.shape = op.shape,
                    .x = {op.x, inputs},
                    .w = {op.weight, inputs},
                    .epilogue = {.bias = bias, .activation = op.activation},
                    .pre = op.pre,
                    .y = op.y},
                   op.workspace);
}

template <const HalfLinearKernels& kKernels>
void run_half_linear_backward(const graph::LinearBackward<BFloat16>& op) {
  if (op.d_x != nullptr) kKernels.forward(linear_input_gradient(op), op.workspace);
  if (op.d_weight != nullptr) kKernels.multiply(product_for_weight(op), op.workspace);
  if (op.d_bias != nullptr) linear_backward_bias(op);
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_half_linear<kTileLinear>,
              half_workspace<kTileLinear>,
              stores_bf16,
              tiles::available_for>(graph::OpKind::kLinear, "tiles"),
    exec::row<run_linear<kLinearBf16x3>, linear_workspace<kLinearBf16x3>, uses_bf16x3>(
        graph::OpKind::kLinear, "bf16x3"),
    native_row<run_linear<kLinear>, run_half_linear<kHalfLinear>, plain_workspace>(
        graph::OpKind::kLinear, "gemm"),
    exec::row<run_half_linear_backward<kTileLinear>,
              half_workspace<kTileLinear>,
              stores_bf16,
              tiles::available_for>(graph::OpKind::kLinearBackward, "tiles"),
    exec::row<run_linear_backward<kLinearBf16x3>, linear_workspace<kLinearBf16x3>, uses_bf16x3>(
        graph::OpKind::kLinearBackward, "bf16x3"),
    native_row<run_linear_backward<kLinear>,
               run_half_linear_backward<kHalfLinear>,
               plain_workspace>(graph::OpKind::kLinearBackward, "gemm"),
};

}  // namespace

constinit const exec::Implementations kCpuLinear = kRows;

}  // namespace lockstep::cpu
