#include "runtime/cpu/ops/batch_norm.h"

#include <cmath>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/batch_norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

template <bool kRelu, bool kDelta, int kRows, typename T>
HWY_INLINE void forward_rows(const graph::BatchNormForward<T>& op,
                             const float* means,
                             const float* scales,
                             int64_t row) {
  const int64_t channels = op.channels;
  const T* const x = op.x + row * channels;
  const T* const delta = kDelta ? op.delta + row * channels : nullptr;
  T* const y = op.y + row * channels;
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

template <bool kRelu, bool kDelta, typename T>
void forward_range(const graph::BatchNormForward<T>& op,
                   const float* mean,
                   const float* scale,
                   int64_t begin,
                   int64_t end) {
  int64_t row = begin;
  for (; row + 4 <= end; row += 4) forward_rows<kRelu, kDelta, 4>(op, mean, scale, row);
  for (; row < end; ++row) forward_rows<kRelu, kDelta, 1>(op, mean, scale, row);
}

void forward_kernel(AnyStored<graph::BatchNormForward> stored,
                    const float* mean,
                    const float* scale,
                    int64_t begin,
                    int64_t end) {
  stored.with([&]<typename T>(const graph::BatchNormForward<T>& op) HWY_ATTR {
    const bool delta = op.delta != nullptr;
    if (op.relu)
      return (delta ? forward_range<true, true, T>
                    : forward_range<true, false, T>)(op, mean, scale, begin, end);
    return (delta ? forward_range<false, true, T>
                  : forward_range<false, false, T>)(op, mean, scale, begin, end);
  });
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

template <typename T>
void batch_norm_scale(
    int64_t channels, const T* gamma, const float* variance, float epsilon, float* scale) {
  for (int64_t c = 0; c < channels; ++c)
    scale[c] = static_cast<float>(to_float(gamma[c]) * inverse_deviation(variance[c], epsilon));
}
template void batch_norm_scale(int64_t, const float*, const float*, float, float*);
template void batch_norm_scale(int64_t, const BFloat16*, const float*, float, float*);

template <typename T>
void batch_norm_apply(const graph::BatchNormForward<T>& op,
                      const float* mean,
                      const float* variance) {
  float* const scale = BatchNormWorkspace(op.workspace, op.channels).scale;
  batch_norm_scale(op.channels, op.gamma, variance, op.epsilon, scale);
  in_parallel(
      op.rows, grain_rows(op.channels), HWY_DYNAMIC_DISPATCH(forward_kernel), op, mean, scale);
}

template void batch_norm_apply(const graph::BatchNormForward<float>&, const float*, const float*);
template void batch_norm_apply(const graph::BatchNormForward<BFloat16>&,
                               const float*,
                               const float*);

namespace {

// Returns the values in floats, in `memory` (channels) if they are not floats.
const float* in_floats(const float* x, int64_t, float*) { return x; }
const float* in_floats(const BFloat16* x, int64_t channels, float* memory) {
  for (int64_t c = 0; c < channels; ++c) memory[c] = to_float(x[c]);
  return memory;
}

size_t workspace_bytes(const graph::OpCall& call) {
  const Shape& x = call.input_shape(graph::InputName::at(0));  // or d_y
  return BatchNormWorkspace::bytes(x.rows(), x.columns());
}

template <typename T>
void run_forward(const graph::BatchNormForward<T>& op) {
  if (!op.call.training()) {
    const BatchNormWorkspace at(op.workspace, op.channels);
    return batch_norm_apply(op,
                            in_floats(op.running_mean, op.channels, at.slope),
                            in_floats(op.running_variance, op.channels, at.offset));
  }
  if (op.lane_statistics != nullptr) {
    combine_lane_statistics(op.lanes, op.channels, op.lane_statistics, op.mean, op.variance);
  } else {
    batch_norm_statistics(
        op.rows, op.channels, op.x, op.mean, op.variance, {op.workspace, op.channels});
  }
  batch_norm_apply(op, op.mean, op.variance);
}

template <typename T>
void run_statistics(const graph::BatchStatistics<T>& op) {
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

// There are no kernels for masks of bits.
bool saves_no_mask(const graph::OpCall& call) {
  return !call.has_output(graph::BatchNormOut::kMask);
}
bool reads_no_mask(const graph::OpCall& call) {
  return !call.has_input(graph::BatchNormBackwardIn::kMask);
}

constexpr exec::Implementation kRows[] = {
    native_row<run_forward<float>, run_forward<BFloat16>, workspace_bytes, saves_no_mask>(
        graph::OpKind::kBatchNorm, "simd"),
    native_row<run_batch_norm_backward<float>,
               run_batch_norm_backward<BFloat16>,
               workspace_bytes,
               reads_no_mask>(graph::OpKind::kBatchNormBackward, "simd"),
    native_row<run_statistics<float>, run_statistics<BFloat16>, workspace_bytes>(
        graph::OpKind::kBatchStatistics, "simd"),
    native_row<run_batch_norm_sums<float>,
               run_batch_norm_sums<BFloat16>,
               workspace_bytes,
               reads_no_mask>(graph::OpKind::kBatchNormSums, "simd"),
    row<run_running>(graph::OpKind::kBatchNormRunning, "plain"),
    native_row<run_batch_norm_input_gradient<float>,
               run_batch_norm_input_gradient<BFloat16>,
               batch_norm_input_gradient_workspace_bytes>(graph::OpKind::kBatchNormInputGradient,
                                                          "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuBatchNorm = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
