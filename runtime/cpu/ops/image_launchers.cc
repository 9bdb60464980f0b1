// Launchers of the ops on images, as launchers.cc has those of the others.
#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/conv2d/conv2d.h"
#include "runtime/cpu/conv2d/conv2d_bf16x3.h"
#include "runtime/cpu/matmul/linear.h"
#include "runtime/cpu/ops/batch_norm.h"
#include "runtime/cpu/ops/image_normalize.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/conv2d.h"
#include "runtime/graph/ops/image_normalize.h"

namespace lockstep::cpu {
namespace {

size_t image_normalize_workspace(const OpCall& op) {
  return image_normalize_workspace_bytes(op.input_shape(0).columns());
}

void run_image_normalize(const OpCall& call) {
  const auto& attributes = call.attributes<ImageNormalizeAttributes>();
  const Shape& x = call.input_shape(0);
  image_normalize({.images = x[0],
                   .pixels = x[1] * x[2],
                   .channels = x[3],
                   .x = call.input<uint8_t>(0),
                   .mean = attributes.mean.data(),
                   .std = attributes.std.data(),
                   .y = call.output<float>(0),
                   .workspace = call.workspace(),
                   .valid_images = call.lane().valid_rows,
                   .mix = call.lane().mix});
}

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
  if (float* d_bias = call.output<float>(2))
    linear_backward_bias(
        {shape.out_pixels(), 0, shape.outputs}, d_y, d_bias, attributes.accumulate_bias);
}

size_t batch_norm_workspace(const OpCall& op) {
  const Shape& x = op.input_shape(0);
  return batch_norm_workspace_bytes(x.rows(), x.columns());
}

void run_batch_norm(const OpCall& call) {
  const auto& attributes = call.attributes<BatchNormAttributes>();
  const int64_t rows = call.input_shape(0).rows(), channels = call.input_shape(0).columns();
  const float *mean = call.input<float>(4), *variance = call.input<float>(5);
  if (call.training()) {
    float *batch_mean = call.output<float>(1), *batch_variance = call.output<float>(2);
    if (const float* lanes = call.input<float>(6)) {
      combine_lane_statistics(call.input_shape(6)[0], channels, lanes, batch_mean, batch_variance);
    } else {
      batch_norm_statistics(
          rows, channels, call.input<float>(0), batch_mean, batch_variance, call.workspace());
    }
    mean = batch_mean;
    variance = batch_variance;
  }
  batch_norm_forward({.rows = rows,
                      .channels = channels,
                      .epsilon = attributes.epsilon,
                      .relu = attributes.activation == Activation::kRelu,
                      .x = call.input<float>(0),
                      .delta = call.input<float>(1),
                      .gamma = call.input<float>(2),
                      .beta = call.input<float>(3),
                      .mean = mean,
                      .variance = variance,
                      .y = call.output<float>(0),
                      .workspace = call.workspace()});
}

// What the backward ops share: all but where results go.
BatchNormBackward batch_norm_backward_of(const OpCall& call) {
  const auto& attributes = call.attributes<BatchNormAttributes>();
  return {.rows = call.input_shape(2).rows(),
          .channels = call.input_shape(2).columns(),
          .epsilon = attributes.epsilon,
          .relu = attributes.activation == Activation::kRelu,
          .d_y = call.input<float>(0),
          .y = call.input<float>(1),
          .x = call.input<float>(2),
          .gamma = call.input<float>(3),
          .beta = call.input<float>(4),
          .mean = call.input<float>(5),
          .variance = call.input<float>(6),
          .d_x = nullptr,
          .d_delta = nullptr,
          .d_gamma = nullptr,
          .d_beta = nullptr,
          .workspace = call.workspace()};
}

// The running statistics' gradients: what a batch of `rows` rows shows of them.
void show_statistics(const OpCall& call, const BatchNormBackward& op, int64_t rows) {
  std::copy_n(op.mean, op.channels, call.output<float>(4));
  unbiased_variance(rows, op.channels, op.variance, call.output<float>(5));
}

void run_batch_norm_backward(const OpCall& call) {
  BatchNormBackward op = batch_norm_backward_of(call);
  op.d_x = call.output<float>(0);
  op.d_delta = call.output<float>(1);
  op.d_gamma = call.output<float>(2);
  op.d_beta = call.output<float>(3);
  batch_norm_backward(op);
  show_statistics(call, op, op.rows);
}

void run_batch_statistics(const OpCall& call) {
  const int64_t channels = call.input_shape(0).columns();
  float* const mean = call.output<float>(0);
  batch_norm_statistics(call.input_shape(0).rows(),
                        channels,
                        call.input<float>(0),
                        mean,
                        mean + channels,
                        call.workspace());
}

void run_batch_norm_sums(const OpCall& call) {
  BatchNormBackward op = batch_norm_backward_of(call);
  op.d_delta = call.output<float>(1);
  op.d_gamma = call.output<float>(2);
  op.d_beta = call.output<float>(3);
  batch_norm_backward_sums(op);
  float* const sums = call.output<float>(0);
  std::copy_n(op.d_beta, op.channels, sums);
  std::copy_n(op.d_gamma, op.channels, sums + op.channels);
  const auto& attributes = call.attributes<BatchNormAttributes>();
  show_statistics(call, op, op.rows * attributes.lanes);
}

// The lanes' sums, in order, in double precision behind what the kernel itself needs.
size_t batch_norm_input_gradient_workspace(const OpCall& op) {
  const Shape& x = op.input_shape(2);
  return batch_norm_workspace_bytes(x.rows(), x.columns()) / 64 * 64 + 64 +
         2 * static_cast<size_t>(x.columns()) * sizeof(double);
}

void run_batch_norm_input_gradient(const OpCall& call) {
  BatchNormBackward op = batch_norm_backward_of(call);
  op.d_x = call.output<float>(0);
  const float* const all = call.input<float>(7);
  const int64_t lanes = call.input_shape(7)[0];
  auto* const sums = reinterpret_cast<double*>(
      call.workspace() + batch_norm_workspace_bytes(op.rows, op.channels) / 64 * 64 + 64);
  for (int64_t i = 0; i < 2 * op.channels; ++i) {
    sums[i] = 0;
    for (int64_t lane = 0; lane < lanes; ++lane) sums[i] += all[lane * 2 * op.channels + i];
  }
  batch_norm_backward_input(op, op.rows * lanes, sums, sums + op.channels);
}

constexpr Implementation kImageNormalizeRows[] = {
    {OpKind::kImageNormalize, "simd", run_image_normalize, image_normalize_workspace},
};
constexpr Implementation kConv2dRows[] = {
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
constexpr Implementation kBatchNormRows[] = {
    {OpKind::kBatchNorm, "simd", run_batch_norm, batch_norm_workspace},
    {OpKind::kBatchNormBackward, "simd", run_batch_norm_backward, batch_norm_workspace},
    {OpKind::kBatchStatistics, "simd", run_batch_statistics, batch_norm_workspace},
    {OpKind::kBatchNormSums, "simd", run_batch_norm_sums, batch_norm_workspace},
    {OpKind::kBatchNormInputGradient,
     "simd",
     run_batch_norm_input_gradient,
     batch_norm_input_gradient_workspace},
};
}  // namespace

constinit const Implementations kCpuImageNormalize = kImageNormalizeRows;
constinit const Implementations kCpuConv2d = kConv2dRows;
constinit const Implementations kCpuBatchNorm = kBatchNormRows;

}  // namespace lockstep::cpu
