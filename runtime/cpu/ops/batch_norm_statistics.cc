#include <algorithm>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/batch_norm.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/batch_norm_statistics.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/ops/batch_norm-inl.h"

#ifndef LOCKSTEP_RUNTIME_CPU_OPS_BATCH_NORM_STATISTICS_CC
#define LOCKSTEP_RUNTIME_CPU_OPS_BATCH_NORM_STATISTICS_CC
namespace lockstep::cpu {
template <typename T>
struct NormalizedRows {
  const T* x;  // (rows, channels)
};
}  // namespace lockstep::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Sums over rows [begin, end) of the differences from row `begin`, and of their squares.
template <typename T>
HWY_INLINE void sum_differences(
    const T* x, int64_t channels, int64_t begin, int64_t end, float* sums, float* squares) {
  const T* const first = x + begin * channels;
  std::fill_n(sums, channels, 0.0f);
  std::fill_n(squares, channels, 0.0f);
  int64_t row = begin;
  for (; row + kTreeRows <= end; row += kTreeRows) {
    const T* const rows = x + row * channels;
    for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
      const Vec shift = access.load(first + c);
      Vec d[kTreeRows];
      for (int64_t k = 0; k < kTreeRows; ++k)
        d[k] = hn::Sub(access.load(rows + k * channels + c), shift);
      access.store(hn::Add(access.load(sums + c), tree_sum(d)), sums + c);
      access.store(hn::Add(access.load(squares + c), tree_product_sum(d, d)), squares + c);
    });
  }
  for (; row < end; ++row) {
    for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
      const Vec d = hn::Sub(access.load(x + row * channels + c), access.load(first + c));
      access.store(hn::Add(access.load(sums + c), d), sums + c);
      access.store(hn::MulAdd(d, d, access.load(squares + c)), squares + c);
    });
  }
}

void statistics_kernel(AnyStored<NormalizedRows> stored,
                       int64_t channels,
                       int64_t begin,
                       int64_t end,
                       float* sums,
                       float* squares) {
  stored.with([&](const auto& rows)
                  HWY_ATTR { sum_differences(rows.x, channels, begin, end, sums, squares); });
}

// Combines the parts' sums into mean and variance of channels [begin, end), by the pairwise update
// of Chan et al.: the difference of two means enters once, in double precision.
template <typename T>
HWY_INLINE void combine_statistics(const T* x,
                                   const float* partial,  // (parts, 2, channels)
                                   double* scratch,       // (2, channels)
                                   int64_t rows,
                                   int64_t part_rows,
                                   int64_t channels,
                                   int64_t begin,
                                   int64_t end,
                                   float* mean,
                                   float* variance) {
  double* const means = scratch;
  double* const squares = scratch + channels;
  for (int64_t first = 0; first < rows; first += part_rows) {
    const float* const sums = partial + first / part_rows * 2 * channels;
    const T* const shift = x + first * channels;
    const auto n = static_cast<double>(std::min(part_rows, rows - first));
    const auto before = static_cast<double>(first);
    const double share = n / (before + n), weight = before * share, inverse = 1 / n;
    for (int64_t c = begin; c < end; ++c) {
      const double sum = sums[c], part_mean = to_float(shift[c]) + sum * inverse;
      const double part_squares = sums[channels + c] - sum * sum * inverse;
      const double old_mean = first == 0 ? 0.0 : means[c];
      const double old_squares = first == 0 ? 0.0 : squares[c];
      const double distance = part_mean - old_mean;
      means[c] = old_mean + distance * share;
      squares[c] = old_squares + part_squares + distance * distance * weight;
    }
  }
  for (int64_t c = begin; c < end; ++c) {
    mean[c] = static_cast<float>(means[c]);
    // Rounding can make the variance negative. NaN stays NaN.
    const double v = squares[c] / static_cast<double>(rows);
    variance[c] = static_cast<float>(v < 0 ? 0 : v);
  }
}

void combine_statistics_kernel(AnyStored<NormalizedRows> stored,
                               const float* partial,
                               double* scratch,
                               int64_t rows,
                               int64_t part_rows,
                               int64_t channels,
                               int64_t begin,
                               int64_t end,
                               float* mean,
                               float* variance) {
  stored.with([&](const auto& of) HWY_ATTR {
    combine_statistics(
        of.x, partial, scratch, rows, part_rows, channels, begin, end, mean, variance);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(statistics_kernel);
HWY_EXPORT(combine_statistics_kernel);

template <typename T>
void batch_norm_statistics(int64_t rows,
                           int64_t channels,
                           const T* x,
                           float* mean,
                           float* variance,
                           const BatchNormWorkspace& workspace) {
  const NormalizedRows<T> stored = {x};
  const RowParts parts = batch_norm_parts(rows);
  const auto sums = HWY_DYNAMIC_DISPATCH(statistics_kernel);
  for_each_part(parts, channels, [&](int64_t part, int64_t begin, int64_t end) {
    float* const partial = workspace.partial + part * 2 * channels;
    sums(stored, channels, begin, end, partial, partial + channels);
  });
  const auto combine = HWY_DYNAMIC_DISPATCH(combine_statistics_kernel);
  parallel_for(channels, grain_rows(2 * parts.count), [&](int64_t begin, int64_t end) {
    combine(stored,
            workspace.partial,
            workspace.scratch,
            rows,
            parts.rows_each,
            channels,
            begin,
            end,
            mean,
            variance);
  });
}

template void batch_norm_statistics(
    int64_t, int64_t, const float*, float*, float*, const BatchNormWorkspace&);
template void batch_norm_statistics(
    int64_t, int64_t, const BFloat16*, float*, float*, const BatchNormWorkspace&);

void combine_lane_statistics(
    int64_t lanes, int64_t channels, const float* statistics, float* mean, float* variance) {
  const auto count = static_cast<double>(lanes);
  for (int64_t c = 0; c < channels; ++c) {
    const auto at = [&](int64_t lane, int64_t which) {
      return static_cast<double>(statistics[(2 * lane + which) * channels + c]);
    };
    double means = 0, squares = 0;
    for (int64_t lane = 0; lane < lanes; ++lane) means += at(lane, 0);
    const double overall = means / count;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const double distance = at(lane, 0) - overall;
      squares += at(lane, 1) + distance * distance;
    }
    mean[c] = static_cast<float>(overall);
    variance[c] = static_cast<float>(squares / count);
  }
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
