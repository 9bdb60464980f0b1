// Launchers of the ops on images, as launchers.cc has those of the others.
#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/batch_norm.h"
#include "runtime/cpu/image_normalize.h"
#include "runtime/cpu/launchers.h"
#include "runtime/cpu/local_response_norm.h"
#include "runtime/cpu/padded_identity.h"
#include "runtime/cpu/pooling.h"

namespace lockstep::cpu {
namespace {

bool always(const Graph&, const Op&) { return true; }
size_t no_workspace(const Graph&, const Op&) { return 0; }

size_t image_normalize_workspace(const Graph& graph, const Op& op) {
  return image_normalize_workspace_bytes(graph.shape(op.inputs[0]).columns());
}

void run_image_normalize(const OpCall& call) {
  const auto& attributes = call.attributes<ImageNormalizeAttributes>();
  image_normalize(call.input_shape(0).rows(),
                  call.input_shape(0).columns(),
                  call.input<uint8_t>(0),
                  attributes.mean.data(),
                  attributes.std.data(),
                  call.output<float>(0),
                  call.workspace());
}

size_t batch_norm_workspace(const Graph& graph, const Op& op) {
  const Shape& x = graph.shape(op.inputs[0]);
  return batch_norm_workspace_bytes(x.rows(), x.columns());
}

void run_batch_norm(const OpCall& call) {
  const auto& attributes = call.attributes<BatchNormAttributes>();
  const int64_t rows = call.input_shape(0).rows(), channels = call.input_shape(0).columns();
  const float *mean = call.input<float>(4), *variance = call.input<float>(5);
  if (call.training()) {
    float *lane_mean = call.output<float>(1), *lane_variance = call.output<float>(2);
    batch_norm_statistics(
        rows, channels, call.input<float>(0), lane_mean, lane_variance, call.workspace());
    mean = lane_mean;
    variance = lane_variance;
  }
  batch_norm_forward({.rows = rows,
                      .channels = channels,
                      .epsilon = attributes.epsilon,
                      .relu = attributes.activation == Activation::kRelu,
                      .x = call.input<float>(0),
                      .delta = call.input<float>(1),
                      .gain = call.input<float>(2),
                      .bias = call.input<float>(3),
                      .mean = mean,
                      .variance = variance,
                      .y = call.output<float>(0),
                      .workspace = call.workspace()});
}

void run_batch_norm_backward(const OpCall& call) {
  const auto& attributes = call.attributes<BatchNormAttributes>();
  const int64_t rows = call.input_shape(0).rows(), channels = call.input_shape(0).columns();
  const float *mean = call.input<float>(5), *variance = call.input<float>(6);
  batch_norm_backward({.rows = rows,
                       .channels = channels,
                       .epsilon = attributes.epsilon,
                       .relu = attributes.activation == Activation::kRelu,
                       .d_y = call.input<float>(0),
                       .y = call.input<float>(1),
                       .x = call.input<float>(2),
                       .gain = call.input<float>(3),
                       .bias = call.input<float>(4),
                       .mean = mean,
                       .variance = variance,
                       .d_x = call.output<float>(0),
                       .d_delta = call.output<float>(1),
                       .d_gain = call.output<float>(2),
                       .d_bias = call.output<float>(3),
                       .workspace = call.workspace()});
  std::copy_n(mean, channels, call.output<float>(4));
  unbiased_variance(rows, channels, variance, call.output<float>(5));
}

PoolShape pool_shape(const Shape& x, const Shape& y, const PoolAttributes& window) {
  return {x[0], x[1], x[2], x[3], y[1], y[2], window};
}

void run_max_pool(const OpCall& call) {
  max_pool_forward(
      pool_shape(call.input_shape(0), call.output_shape(0), call.attributes<PoolAttributes>()),
      call.input<float>(0),
      call.output<float>(0),
      call.output<uint8_t>(1));
}

void run_max_pool_backward(const OpCall& call) {
  max_pool_backward(
      pool_shape(call.output_shape(0), call.input_shape(0), call.attributes<PoolAttributes>()),
      call.input<float>(0),
      call.input<uint8_t>(1),
      call.output<float>(0));
}

void run_avg_pool(const OpCall& call) {
  avg_pool_forward(
      pool_shape(call.input_shape(0), call.output_shape(0), call.attributes<PoolAttributes>()),
      call.input<float>(0),
      call.output<float>(0));
}

void run_avg_pool_backward(const OpCall& call) {
  avg_pool_backward(
      pool_shape(call.output_shape(0), call.input_shape(0), call.attributes<PoolAttributes>()),
      call.input<float>(0),
      call.output<float>(0));
}

void run_global_avg_pool(const OpCall& call) {
  const Shape& x = call.input_shape(0);
  global_avg_pool_forward(x[0], x[1] * x[2], x[3], call.input<float>(0), call.output<float>(0));
}

void run_global_avg_pool_backward(const OpCall& call) {
  const Shape& x = call.output_shape(0);
  global_avg_pool_backward(x[0], x[1] * x[2], x[3], call.input<float>(0), call.output<float>(0));
}

void run_local_response_norm(const OpCall& call) {
  const Shape& x = call.input_shape(0);
  local_response_norm_forward(x.rows(),
                              x.columns(),
                              call.attributes<LocalResponseNormAttributes>(),
                              call.input<float>(0),
                              call.output<float>(0));
}

void run_local_response_norm_backward(const OpCall& call) {
  const Shape& x = call.input_shape(0);
  local_response_norm_backward(x.rows(),
                               x.columns(),
                               call.attributes<LocalResponseNormAttributes>(),
                               call.input<float>(0),
                               call.input<float>(1),
                               call.output<float>(0));
}

bool narrow_window(const Graph&, const Op& op) {
  return op.as<LocalResponseNormAttributes>().size <= kMostNormChannels;
}

void run_padded_identity(const OpCall& call) {
  const Shape& x = call.input_shape(0);
  padded_identity_forward({x[0], x[1], x[2], x[3], call.attributes<PaddedIdentityAttributes>()},
                          call.input<float>(0),
                          call.output<float>(0));
}

void run_padded_identity_backward(const OpCall& call) {
  const Shape& x = call.output_shape(0);
  padded_identity_backward({x[0], x[1], x[2], x[3], call.attributes<PaddedIdentityAttributes>()},
                           call.input<float>(0),
                           call.output<float>(0));
}

const Implementation kImplementations[] = {
    {OpKind::kImageNormalize, "simd", always, image_normalize_workspace, run_image_normalize},
    {OpKind::kBatchNorm, "simd", always, batch_norm_workspace, run_batch_norm},
    {OpKind::kBatchNormBackward, "simd", always, batch_norm_workspace, run_batch_norm_backward},
    {OpKind::kMaxPool, "simd", always, no_workspace, run_max_pool},
    {OpKind::kMaxPoolBackward, "simd", always, no_workspace, run_max_pool_backward},
    {OpKind::kAvgPool, "simd", always, no_workspace, run_avg_pool},
    {OpKind::kAvgPoolBackward, "simd", always, no_workspace, run_avg_pool_backward},
    {OpKind::kGlobalAvgPool, "simd", always, no_workspace, run_global_avg_pool},
    {OpKind::kGlobalAvgPoolBackward, "simd", always, no_workspace, run_global_avg_pool_backward},
    {OpKind::kLocalResponseNorm, "simd", narrow_window, no_workspace, run_local_response_norm},
    {OpKind::kLocalResponseNormBackward,
     "simd",
     narrow_window,
     no_workspace,
     run_local_response_norm_backward},
    {OpKind::kPaddedIdentity, "copy", always, no_workspace, run_padded_identity},
    {OpKind::kPaddedIdentityBackward, "copy", always, no_workspace, run_padded_identity_backward},
};

}  // namespace

std::span<const Implementation> vision_implementations() { return kImplementations; }

}  // namespace lockstep::cpu
