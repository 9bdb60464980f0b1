// Transposed convolutions: the kernels of conv2d/ for a convolution's input gradient compute them.
#include "runtime/graph/ops/conv_transpose2d.h"

#include "runtime/base/threads.h"
#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/conv2d/conv2d_bf16x3.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

graph::Conv2dShape shape_of(const graph::OpCall& op) {
  return op.kind() == graph::OpKind::kConvTranspose2d
             ? graph::ConvTranspose2dForward<float>{op}.shape
             : graph::ConvTranspose2dBackward<float>{op}.shape;
}

// The kernels of a way to multiply floats: with fused multiply-adds, or as in bf16x3.h.
struct Kernels {
  decltype(&conv2d_workspace_bytes) workspace_bytes;
  decltype(&conv2d_forward) forward;
  decltype(&conv2d_backward_input) backward_input;
  decltype(&conv2d_backward_weight) backward_weight;
};
constexpr Kernels kFloat = {
    conv2d_workspace_bytes, conv2d_forward, conv2d_backward_input, conv2d_backward_weight};
constexpr Kernels kBf16x3 = {bf16x3::conv2d_workspace_bytes,
                             bf16x3::conv2d_forward,
                             bf16x3::conv2d_backward_input,
                             bf16x3::conv2d_backward_weight};

bool uses_bf16x3(const graph::OpCall& op) { return op.bf16x3() && bf16x3::supports(shape_of(op)); }

template <const Kernels& kKernels>
size_t workspace_bytes(const graph::OpCall& op) {
  return static_cast<size_t>(kKernels.workspace_bytes(shape_of(op), compute_threads()));
}

template <const Kernels& kKernels>
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

template <const Kernels& kKernels>
void run_backward(const graph::ConvTranspose2dBackward<float>& op) {
  if (op.d_x != nullptr) {
    kKernels.forward({.shape = op.shape, .x = op.d_y, .w = op.weight, .epilogue = {}, .y = op.d_x},
                     op.workspace);
  }
  if (op.d_weight != nullptr) kKernels.backward_weight(op.weight_product());
  if (op.d_bias != nullptr) conv2d_backward_bias(op.bias_sum());
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward<kBf16x3>, workspace_bytes<kBf16x3>, uses_bf16x3>(
        graph::OpKind::kConvTranspose2d, "bf16x3"),
    exec::row<run_forward<kFloat>, workspace_bytes<kFloat>>(graph::OpKind::kConvTranspose2d,
                                                            "implicit gemm"),
    exec::row<run_backward<kBf16x3>, workspace_bytes<kBf16x3>, uses_bf16x3>(
        graph::OpKind::kConvTranspose2dBackward, "bf16x3"),
    exec::row<run_backward<kFloat>, workspace_bytes<kFloat>>(
        graph::OpKind::kConvTranspose2dBackward, "implicit gemm"),
};

}  // namespace

constinit const exec::Implementations kCpuConvTranspose2d = kRows;

}  // namespace lockstep::cpu
