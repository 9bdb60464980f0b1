// Convolutions, and those with the norm behind them, by the kernels of conv2d/.
#include "runtime/graph/ops/conv2d.h"

#include "runtime/base/threads.h"
#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/conv2d/conv2d_bf16x3.h"
#include "runtime/cpu/matmul/linear.h"
#include "runtime/cpu/ops/batch_norm.h"
#include "runtime/cpu/ops/implementations.h"

namespace lockstep::cpu {
namespace {

Conv2dShape shape_of_conv2d(const OpCall& op) {
  switch (op.kind()) {
    case OpKind::kConv2dBackward:
      return conv2d_shape(
          op.input_shape(1), op.input_shape(2), op.attributes<Conv2dBackwardAttributes>().forward);
    case OpKind::kConv2dBatchNorm:
      return conv2d_shape(
          op.input_shape(0), op.input_shape(1), op.attributes<Conv2dBatchNormAttributes>().conv);
    default:
      return conv2d_shape(op.input_shape(0), op.input_shape(1), op.attributes<Conv2dAttributes>());
  }
}

// The ways to multiply floats.
struct Conv2dKernels {
  decltype(&conv2d_workspace_bytes) workspace_bytes, forward_workspace_bytes;
  decltype(&conv2d_forward) forward;
  decltype(&conv2d_backward_input) backward_input;
  decltype(&conv2d_backward_weight) backward_weight;
};
constexpr Conv2dKernels kConv2d = {conv2d_workspace_bytes,
                                   conv2d_forward_workspace_bytes,
                                   conv2d_forward,
                                   conv2d_backward_input,
                                   conv2d_backward_weight};
constexpr Conv2dKernels kConv2dBf16x3 = {bf16x3::conv2d_workspace_bytes,
                                         bf16x3::conv2d_forward_workspace_bytes,
                                         bf16x3::conv2d_forward,
                                         bf16x3::conv2d_backward_input,
                                         bf16x3::conv2d_backward_weight};

bool conv2d_uses_bf16x3(const OpCall& op) {
  return op.bf16x3() && bf16x3::supports(shape_of_conv2d(op));
}

template <const Conv2dKernels& kKernels>
size_t conv2d_workspace(const OpCall& op) {
  const auto bytes =
      op.kind() == OpKind::kConv2d ? kKernels.forward_workspace_bytes : kKernels.workspace_bytes;
  return static_cast<size_t>(bytes(shape_of_conv2d(op), compute_threads()));
}

template <const Conv2dKernels& kKernels>
void run_conv2d(const OpCall& call) {
  const auto& attributes = call.attributes<Conv2dAttributes>();
  kKernels.forward({.shape = conv2d_shape(call.input_shape(0), call.input_shape(1), attributes),
                    .x = call.input<float>(0),
                    .w = call.input<float>(1),
                    .epilogue = {.bias = call.input<float>(2), .activation = attributes.activation},
                    .y = call.output<float>(0)},
                   call.workspace());
}

// The convolution's own, and behind it the norm's scale.
template <const Conv2dKernels& kKernels>
size_t norm_scale_offset(const Conv2dShape& shape) {
  return static_cast<size_t>(kKernels.forward_workspace_bytes(shape, compute_threads()) + 63) / 64 *
         64;
}

template <const Conv2dKernels& kKernels>
size_t conv2d_batch_norm_workspace(const OpCall& op) {
  const Conv2dShape shape = shape_of_conv2d(op);
  return norm_scale_offset<kKernels>(shape) + static_cast<size_t>(shape.outputs) * sizeof(float);
}

template <const Conv2dKernels& kKernels>
void run_conv2d_batch_norm(const OpCall& call) {
  const auto& attributes = call.attributes<Conv2dBatchNormAttributes>();
  const Conv2dShape shape = conv2d_shape(call.input_shape(0), call.input_shape(1), attributes.conv);
  auto* const scale =
      reinterpret_cast<float*>(call.workspace() + norm_scale_offset<kKernels>(shape));
  batch_norm_scale(
      shape.outputs, call.input<float>(3), call.input<float>(6), attributes.norm.epsilon, scale);
  kKernels.forward({.shape = shape,
                    .x = call.input<float>(0),
                    .w = call.input<float>(1),
                    .epilogue = {.bias = call.input<float>(2),
                                 .mean = call.input<float>(5),
                                 .scale = scale,
                                 .shift = call.input<float>(4),
                                 .residual = call.input<float>(7),
                                 .activation = attributes.norm.activation},
                    .y = call.output<float>(0)},
                   call.workspace());
}

template <const Conv2dKernels& kKernels>
void run_conv2d_backward(const OpCall& call) {
  const auto& attributes = call.attributes<Conv2dBackwardAttributes>();
  const Conv2dShape shape =
      conv2d_shape(call.input_shape(1), call.input_shape(2), attributes.forward);
  const float* const d_y = call.input<float>(0);
  if (float* d_x = call.output<float>(0))
    kKernels.backward_input(shape, d_y, call.input<float>(2), d_x, call.workspace());
  kKernels.backward_weight(shape,
                           d_y,
                           call.input<float>(1),
                           call.output<float>(1),
                           attributes.accumulate_weight,
                           call.workspace());
  if (float* d_bias = call.output<float>(2)) {
    LinearBackward<float> bias{};
    bias.shape = {shape.out_pixels(), 0, shape.outputs};
    bias.accumulate_bias = attributes.accumulate_bias;
    bias.d_y = d_y;
    bias.d_bias = d_bias;
    linear_backward_bias(bias);
  }
}

constexpr Implementation kRows[] = {
    {OpKind::kConv2d,
     "bf16x3",
     run_conv2d<kConv2dBf16x3>,
     conv2d_workspace<kConv2dBf16x3>,
     conv2d_uses_bf16x3},
    {OpKind::kConv2d, "implicit gemm", run_conv2d<kConv2d>, conv2d_workspace<kConv2d>},
    {OpKind::kConv2dBackward,
     "bf16x3",
     run_conv2d_backward<kConv2dBf16x3>,
     conv2d_workspace<kConv2dBf16x3>,
     conv2d_uses_bf16x3},
    {OpKind::kConv2dBackward,
     "implicit gemm",
     run_conv2d_backward<kConv2d>,
     conv2d_workspace<kConv2d>},
    {OpKind::kConv2dBatchNorm,
     "bf16x3",
     run_conv2d_batch_norm<kConv2dBf16x3>,
     conv2d_batch_norm_workspace<kConv2dBf16x3>,
     conv2d_uses_bf16x3},
    {OpKind::kConv2dBatchNorm,
     "implicit gemm",
     run_conv2d_batch_norm<kConv2d>,
     conv2d_batch_norm_workspace<kConv2d>},
};

}  // namespace

constinit const Implementations kCpuConv2d = kRows;

}  // namespace lockstep::cpu
