// Convolutions, and those with a fused norm, by the kernels of conv2d/.
#include "runtime/graph/ops/conv2d.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "runtime/base/half.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/ops/batch_norm.h"
#include "runtime/cpu/ops/conv2d_kernels.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/graph/ops/conv_transpose2d.h"

namespace lockstep::cpu {
namespace {

bool uses_bf16x3(const graph::OpCall& op) {
  return op.bf16x3() && !stores_bf16(op) && bf16x3::supports(conv2d_shape(op));
}

bool uses_tiles(const graph::OpCall& op) {
  return stores_bf16(op) && tiles::supports(conv2d_shape(op));
}

// Values of channels in floats. If they are stored as bfloat16, they are copied to `memory`.
class ChannelFloats {
 public:
  ChannelFloats(std::byte* memory, int64_t channels)
      : next_(reinterpret_cast<float*>(memory)), channels_(channels) {}

  float* take() { return std::exchange(next_, next_ + channels_); }
  const float* of(const float* values) { return values; }
  const float* of(const BFloat16* values) {
    if (values == nullptr) return nullptr;
    float* const copy = take();
    std::transform(values, values + channels_, copy, [](BFloat16 x) { return to_float(x); });
    return copy;
  }

 private:
  float* next_;
  int64_t channels_;
};

// Where the values of channels begin: behind the workspace of the forward pass.
template <const auto& kKernels>
size_t channels_offset(const graph::Conv2dShape& shape) {
  return static_cast<size_t>(kKernels.forward_workspace_bytes(shape, compute_threads()) + 63) / 64 *
         64;
}
template <const auto& kKernels>
size_t with_channels(const graph::Conv2dShape& shape, int arrays) {
  return channels_offset<kKernels>(shape) +
         static_cast<size_t>(arrays * shape.outputs) * sizeof(float);
}

template <const auto& kKernels>
using StoredBy = typename std::remove_cvref_t<decltype(kKernels)>::Stored;

template <const auto& kKernels>
size_t workspace_of(const graph::OpCall& op) {
  const graph::Conv2dShape shape = conv2d_shape(op);
  constexpr bool kFloats = std::is_same_v<StoredBy<kKernels>, float>;
  switch (op.kind()) {
    case graph::OpKind::kConv2dBackward:
      return static_cast<size_t>(kKernels.workspace_bytes(shape, compute_threads()));
    case graph::OpKind::kConv2dBatchNorm:
      // The norm's scale; for bfloat16 also bias, mean, variance and shift.
      return with_channels<kKernels>(shape, kFloats ? 1 : 5);
    default:
      return kFloats
                 ? static_cast<size_t>(kKernels.forward_workspace_bytes(shape, compute_threads()))
                 : with_channels<kKernels>(shape, 1);
  }
}

size_t plain_workspace(const graph::OpCall& op) {
  return stores_bf16(op) ? workspace_of<kConv2d<BFloat16>>(op) : workspace_of<kConv2d<float>>(op);
}

template <const auto& kKernels>
void run_conv2d(const graph::Conv2dForward<StoredBy<kKernels>>& op) {
  ChannelFloats channels(op.workspace + channels_offset<kKernels>(op.shape), op.shape.outputs);
  kKernels.forward({.shape = op.shape,
                    .x = op.x,
                    .w = op.weight,
                    .epilogue = {.bias = channels.of(op.bias), .activation = op.activation},
                    .y = op.y},
                   op.workspace);
}

template <const auto& kKernels>
void run_conv2d_batch_norm(const graph::Conv2dBatchNormForward<StoredBy<kKernels>>& op) {
  ChannelFloats channels(op.workspace + channels_offset<kKernels>(op.shape), op.shape.outputs);
  float* const scale = channels.take();
  batch_norm_scale(op.shape.outputs, op.gamma, channels.of(op.running_variance), op.epsilon, scale);
  kKernels.forward({.shape = op.shape,
                    .x = op.x,
                    .w = op.weight,
                    .epilogue = {.bias = channels.of(op.bias),
                                 .mean = channels.of(op.running_mean),
                                 .scale = scale,
                                 .shift = channels.of(op.beta),
                                 .residual = op.delta,
                                 .activation = op.activation},
                    .y = op.y},
                   op.workspace);
}

template <const auto& kKernels>
void run_conv2d_backward(const graph::Conv2dBackward<StoredBy<kKernels>>& op) {
  if (op.d_x != nullptr) kKernels.backward_input(op);
  if (op.d_weight != nullptr) kKernels.backward_weight(op);
  if (op.d_bias != nullptr) conv2d_backward_bias(op);
}

constexpr exec::Implementation kRows[] = {
    exec::
        row<run_conv2d<kConv2dTiles>, workspace_of<kConv2dTiles>, uses_tiles, tiles::available_for>(
            graph::OpKind::kConv2d, "tiles"),
    exec::row<run_conv2d<kConv2dBf16x3>, workspace_of<kConv2dBf16x3>, uses_bf16x3>(
        graph::OpKind::kConv2d, "bf16x3"),
    native_row<run_conv2d<kConv2d<float>>, run_conv2d<kConv2d<BFloat16>>, plain_workspace>(
        graph::OpKind::kConv2d, "implicit gemm"),
    exec::row<run_conv2d_backward<kConv2dTiles>,
              workspace_of<kConv2dTiles>,
              uses_tiles,
              tiles::available_for>(graph::OpKind::kConv2dBackward, "tiles"),
    exec::row<run_conv2d_backward<kConv2dBf16x3>, workspace_of<kConv2dBf16x3>, uses_bf16x3>(
        graph::OpKind::kConv2dBackward, "bf16x3"),
    native_row<run_conv2d_backward<kConv2d<float>>,
               run_conv2d_backward<kConv2d<BFloat16>>,
               plain_workspace>(graph::OpKind::kConv2dBackward, "implicit gemm"),
    exec::row<run_conv2d_batch_norm<kConv2dTiles>,
              workspace_of<kConv2dTiles>,
              uses_tiles,
              tiles::available_for>(graph::OpKind::kConv2dBatchNorm, "tiles"),
    exec::row<run_conv2d_batch_norm<kConv2dBf16x3>, workspace_of<kConv2dBf16x3>, uses_bf16x3>(
        graph::OpKind::kConv2dBatchNorm, "bf16x3"),
    native_row<run_conv2d_batch_norm<kConv2d<float>>,
               run_conv2d_batch_norm<kConv2d<BFloat16>>,
               plain_workspace>(graph::OpKind::kConv2dBatchNorm, "implicit gemm"),
};

}  // namespace

constinit const exec::Implementations kCpuConv2d = kRows;

}  // namespace lockstep::cpu
