// Convolutions, and those with a fused norm, by the kernels of conv2d/.
#include "runtime/graph/ops/conv2d.h"

#include "runtime/base/threads.h"
#include "runtime/cpu/ops/batch_norm.h"
#include "runtime/cpu/ops/conv2d_kernels.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/graph/ops/conv_transpose2d.h"

namespace lockstep::cpu {
namespace {

bool conv2d_uses_bf16x3(const graph::OpCall& op) {
  return op.bf16x3() && bf16x3::supports(conv2d_shape(op));
}

template <const Conv2dKernels& kKernels>
size_t conv2d_workspace(const graph::OpCall& op) {
  const auto bytes = op.kind() == graph::OpKind::kConv2d ? kKernels.forward_workspace_bytes
                                                         : kKernels.workspace_bytes;
  return static_cast<size_t>(bytes(conv2d_shape(op), compute_threads()));
}

template <const Conv2dKernels& kKernels>
void run_conv2d(const graph::Conv2dForward<float>& op) {
  kKernels.forward({.shape = op.shape,
                    .x = op.x,
                    .w = op.weight,
                    .epilogue = {.bias = op.bias, .activation = op.activation},
                    .y = op.y},
                   op.workspace);
}

// The norm's scale follows the convolution's workspace.
template <const Conv2dKernels& kKernels>
size_t norm_scale_offset(const graph::Conv2dShape& shape) {
  return static_cast<size_t>(kKernels.forward_workspace_bytes(shape, compute_threads()) + 63) / 64 *
         64;
}

template <const Conv2dKernels& kKernels>
size_t conv2d_batch_norm_workspace(const graph::OpCall& op) {
  const graph::Conv2dShape shape = conv2d_shape(op);
  return norm_scale_offset<kKernels>(shape) + static_cast<size_t>(shape.outputs) * sizeof(float);
}

template <const Conv2dKernels& kKernels>
void run_conv2d_batch_norm(const graph::Conv2dBatchNormForward<float>& op) {
  auto* const scale =
      reinterpret_cast<float*>(op.workspace + norm_scale_offset<kKernels>(op.shape));
  batch_norm_scale(op.shape.outputs, op.gamma, op.running_variance, op.epsilon, scale);
  kKernels.forward({.shape = op.shape,
                    .x = op.x,
                    .w = op.weight,
                    .epilogue = {.bias = op.bias,
                                 .mean = op.running_mean,
                                 .scale = scale,
                                 .shift = op.beta,
                                 .residual = op.delta,
                                 .activation = op.activation},
                    .y = op.y},
                   op.workspace);
}

template <const Conv2dKernels& kKernels>
void run_conv2d_backward(const graph::Conv2dBackward<float>& op) {
  if (op.d_x != nullptr) kKernels.backward_input(op);
  if (op.d_weight != nullptr) kKernels.backward_weight(op);
  if (op.d_bias != nullptr) conv2d_backward_bias(op);
}

constexpr exec::Implementation kRows[] = {
    row<run_conv2d<kConv2dBf16x3>, conv2d_workspace<kConv2dBf16x3>, conv2d_uses_bf16x3>(
        graph::OpKind::kConv2d, "bf16x3"),
    row<run_conv2d<kConv2d>, conv2d_workspace<kConv2d>>(graph::OpKind::kConv2d, "implicit gemm"),
    row<run_conv2d_backward<kConv2dBf16x3>, conv2d_workspace<kConv2dBf16x3>, conv2d_uses_bf16x3>(
        graph::OpKind::kConv2dBackward, "bf16x3"),
    row<run_conv2d_backward<kConv2d>, conv2d_workspace<kConv2d>>(graph::OpKind::kConv2dBackward,
                                                                 "implicit gemm"),
    row<run_conv2d_batch_norm<kConv2dBf16x3>,
        conv2d_batch_norm_workspace<kConv2dBf16x3>,
        conv2d_uses_bf16x3>(graph::OpKind::kConv2dBatchNorm, "bf16x3"),
    row<run_conv2d_batch_norm<kConv2d>, conv2d_batch_norm_workspace<kConv2d>>(
        graph::OpKind::kConv2dBatchNorm, "implicit gemm"),
};

}  // namespace

constinit const exec::Implementations kCpuConv2d = kRows;

}  // namespace lockstep::cpu
