#include "runtime/cpu/ops/batch_norm.h"

#include <cmath>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/batch_norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

template <bool kRelu, bool kDelta, int kRows>
HWY_INLINE void forward_rows(const graph::BatchNormForward<float>& op,
                             const float* means,
                             const float* scales,
                             int64_t row) {
  const int64_t channels = op.channels;
  const float* const x = op.x + row * channels;
  const float* const delta = kDelta ? op.delta + row * channels : nullptr;
  float* const y = op.y + row * channels;
  for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
    const Vec mean = access.load(means + c), scale = access.load(scales + c);
    const Vec beta = access.load(op.beta + c);
    for (int k = 0; k < kRows; ++k) {
      const int64_t i = k * channels + static_cast<int64_t>(c);
      Vec v = hn::MulAdd(hn::Sub(access.load(x + i), mean), scale, beta);
      if constexpr (kDelta) v = hn::Add(v, access.load(delta + i));
      if constexpr (kRelu) v = at_least(0.0f, v);
      access.store(v, y + i);
    }
  });
}

template <bool kRelu, bool kDelta>
void forward_range(const graph::BatchNormForward<float>& op,
                   const float* mean,
                   const float* scale,
                   int64_t begin,
                   int64_t end) {
  int64_t row = begin;
  for (; row + 4 <= end; row += 4) forward_rows<kRelu, kDelta, 4>(op, mean, scale, row);
  for (; row < end; ++row) forward_rows<kRelu, kDelta, 1>(op, mean, scale, row);
}

void forward_kernel(const graph::BatchNormForward<float>& op,
                    const float* mean,
                    const float* scale,
                    int64_t begin,
                    int64_t end) {
  const bool delta = op.delta != nullptr;
  if (op.relu)
    return (delta ? forward_range<true, true>
                  : forward_range<true, false>)(op, mean, scale, begin, end);
  return (delta ? forward_range<false, true>
                : forward_range<false, false>)(op, mean, scale, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(forward_kernel);

double inverse_deviation(float variance, float epsilon) {
  return 1 / std::sqrt(static_cast<double>(variance) + static_cast<double>(epsilon));
}

void batch_norm_scale(
    int64_t channels, const float* gamma, const float* variance, float epsilon, float* scale) {
  for (int64_t c = 0; c < channels; ++c)
    scale[c] = static_cast<float>(gamma[c] * inverse_deviation(variance[c], epsilon));
}

void batch_norm_apply(const graph::BatchNormForward<float>& op,
                      const float* mean,
                      const float* variance) {
  float* const scale = BatchNormWorkspace(op.workspace, op.channels).scale;
  batch_norm_scale(op.channels, op.gamma, variance, op.epsilon, scale);
  in_parallel(
      op.rows, grain_rows(op.channels), HWY_DYNAMIC_DISPATCH(forward_kernel), op, mean, scale);
}

namespace {

size_t workspace_bytes(const graph::OpCall& call) {
  const Shape& x = call.input_shape(graph::InputName::at(0));  // or d_y
  return BatchNormWorkspace::bytes(x.rows(), x.columns());
}

void run_forward(const graph::BatchNormForward<float>& op) {
  if (!op.call.training()) return batch_norm_apply(op, op.running_mean, op.running_variance);
  if (op.lane_statistics != nullptr) {
    combine_lane_statistics(op.lanes, op.channels, op.lane_statistics, op.mean, op.variance);
  } else {
    batch_norm_statistics(
        op.rows, op.channels, op.x, op.mean, op.variance, {op.workspace, op.channels});
  }
  batch_norm_apply(op, op.mean, op.variance);
}

void run_statistics(const graph::BatchStatistics<float>& op) {
  batch_norm_statistics(op.rows,
                        op.channels,
                        op.x,
                        op.statistics,
                        op.statistics + op.channels,
                        {op.workspace, op.channels});
}

// Computes only two values per channel, once per step, so a plain loop suffices.
void run_running(const graph::BatchNormRunning<float>& op) {
  const auto rows = static_cast<double>(op.rows);
  const double factor = op.rows > 1 ? rows / (rows - 1) : 1.0;
  for (int64_t c = 0; c < op.channels; ++c) {
    op.d_running_mean[c] = op.mean[c];
    op.d_running_variance[c] = static_cast<float>(op.variance[c] * factor);
  }
}

constexpr exec::Implementation kRows[] = {
    row<run_forward, workspace_bytes>(graph::OpKind::kBatchNorm, "simd"),
    row<run_batch_norm_backward, workspace_bytes>(graph::OpKind::kBatchNormBackward, "simd"),
    row<run_statistics, workspace_bytes>(graph::OpKind::kBatchStatistics, "simd"),
    row<run_batch_norm_sums, workspace_bytes>(graph::OpKind::kBatchNormSums, "simd"),
    row<run_running>(graph::OpKind::kBatchNormRunning, "plain"),
    row<run_batch_norm_input_gradient, batch_norm_input_gradient_workspace_bytes>(
        graph::OpKind::kBatchNormInputGradient, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuBatchNorm = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
