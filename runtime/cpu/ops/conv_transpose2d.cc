// Transposed convolutions: the kernels of conv2d/ for a convolution's input gradient compute them.
#include "runtime/graph/ops/conv_transpose2d.h"

#include "runtime/base/half.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/conv2d_kernels.h"
#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

bool uses_bf16x3(const graph::OpCall& op) {
  return op.bf16x3() && !stores_bf16(op) && bf16x3::supports(conv2d_shape(op));
}

// A bias is added to sums in floats.
bool is_summed_at_once(const graph::OpCall& op) {
  return !stores_bf16(op) || !op.has_input(graph::ConvTranspose2dIn::kBias);
}

template <const auto& kKernels>
size_t workspace_bytes(const graph::OpCall& op) {
  return static_cast<size_t>(kKernels.workspace_bytes(conv2d_shape(op), compute_threads()));
}

size_t plain_workspace(const graph::OpCall& op) {
  return stores_bf16(op) ? workspace_bytes<kConv2d<BFloat16>>(op)
                         : workspace_bytes<kConv2d<float>>(op);
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

void run_forward_bf16(const graph::ConvTranspose2dForward<BFloat16>& op) {
  conv2d_backward_input(op.product());
}

template <typename T, const Conv2dKernels<T>& kKernels>
void run_backward(const graph::ConvTranspose2dBackward<T>& op) {
  if (op.d_x != nullptr) {
    kKernels.forward({.shape = op.shape, .x = op.d_y, .w = op.weight, .epilogue = {}, .y = op.d_x},
                     op.workspace);
  }
  if (op.d_weight != nullptr) kKernels.backward_weight(op.weight_product());
  if (op.d_bias != nullptr) conv2d_backward_bias(op.bias_sum());
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward<kConv2dBf16x3>, workspace_bytes<kConv2dBf16x3>, uses_bf16x3>(
        graph::OpKind::kConvTranspose2d, "bf16x3"),
    native_row<run_forward<kConv2d<float>>, run_forward_bf16, plain_workspace, is_summed_at_once>(
        graph::OpKind::kConvTranspose2d, "implicit gemm"),
    row<run_forward<kConv2d<float>>, workspace_bytes<kConv2d<float>>>(
        graph::OpKind::kConvTranspose2d, "implicit gemm"),
    exec::row<run_backward<float, kConv2dBf16x3>, workspace_bytes<kConv2dBf16x3>, uses_bf16x3>(
        graph::OpKind::kConvTranspose2dBackward, "bf16x3"),
    native_row<run_backward<float, kConv2d<float>>,
               run_backward<BFloat16, kConv2d<BFloat16>>,
               plain_workspace>(graph::OpKind::kConvTranspose2dBackward, "implicit gemm"),
};

}  // namespace

constinit const exec::Implementations kCpuConvTranspose2d = kRows;

}  // namespace lockstep::cpu
