// Transposed convolutions: the kernels of conv2d/ for a convolution's input gradient compute them.
#include "runtime/graph/ops/conv_transpose2d.h"

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/conv2d_kernels.h"
#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

bool uses_bf16x3(const graph::OpCall& op) {
  return op.bf16x3() && bf16x3::supports(conv2d_shape(op));
}

template <const Conv2dKernels<float>& kKernels>
size_t workspace_bytes(const graph::OpCall& op) {
  return static_cast<size_t>(kKernels.workspace_bytes(conv2d_shape(op), compute_threads()));
}

template <const Conv2dKernels<float>& kKernels>
void run_forward(const graph::ConvTranspose2dForward<float>& op) {
  kKernels.backward_input(op.product());
  if (op.bias == nullptr) return;
  const int64_t channels = op.shape.channels;
  parallel_for(op.shape.pixels(), grain_rows(channels), [&](int64_t begin, int64_t end) {
    for (int64_t pixel = begin; pixel < end; ++pixel) {
      for (int64_t c = 0; c < channels; ++c) op.y[pixel * channels + c] += op.bias[c];
    }
  });
}

template <const Conv2dKernels<float>& kKernels>
void run_backward(const graph::ConvTranspose2dBackward<float>& op) {
  if (op.d_x != nullptr) {
    kKernels.forward({.shape = op.shape, .x = op.d_y, .w = op.weight, .epilogue = {}, .y = op.d_x},
                     op.workspace);
  }
  if (op.d_weight != nullptr) kKernels.backward_weight(op.weight_product());
  if (op.d_bias != nullptr) conv2d_backward_bias(op.bias_sum());
}

constexpr exec::Implementation kRows[] = {
    row<run_forward<kConv2dBf16x3>, workspace_bytes<kConv2dBf16x3>, uses_bf16x3>(
        graph::OpKind::kConvTranspose2d, "bf16x3"),
    row<run_forward<kConv2d<float>>, workspace_bytes<kConv2d<float>>>(
        graph::OpKind::kConvTranspose2d, "implicit gemm"),
    row<run_backward<kConv2dBf16x3>, workspace_bytes<kConv2dBf16x3>, uses_bf16x3>(
        graph::OpKind::kConvTranspose2dBackward, "bf16x3"),
    row<run_backward<kConv2d<float>>, workspace_bytes<kConv2d<float>>>(
        graph::OpKind::kConvTranspose2dBackward, "implicit gemm"),
};

}  // namespace

constinit const exec::Implementations kCpuConvTranspose2d = kRows;

}  // namespace lockstep::cpu
