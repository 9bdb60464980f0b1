#include "runtime/cpu/ops/mean_squared_error.h"

#include <cstring>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/mean_squared_error.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

template <bool kTrain>
HWY_INLINE LossRow squared_row(const MeanSquaredError& op,
                               const float* y,
                               const float* target,
                               float* gradient,
                               float gradient_scale) {
  const Vec factor =
      set(static_cast<float>(2.0 * gradient_scale / static_cast<double>(op.outputs)));
  RowSum squares;
  for_each_row_vector(op.outputs, [&](size_t i, auto part, auto access) HWY_ATTR {
    const Vec difference = hn::Sub(access.load(y + i), access.load(target + i));
    squares.add_product(part, difference, difference);
    if constexpr (kTrain) access.store(hn::Mul(difference, factor), gradient + i);
  });
  return {.loss = static_cast<double>(squares.total()) / static_cast<double>(op.outputs),
          .correct = 0,
          .counted = 1};
}

void mean_squared_error_forward_kernel(const MeanSquaredError& op,
                                       const float* predictions,
                                       int64_t begin,
                                       int64_t end) {
  LossRow* results = static_cast<LossRow*>(op.workspace);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * op.outputs;
    results[row] = row < op.valid_rows
                       ? squared_row<false>(op, predictions + at, op.targets + at, nullptr, 0)
                       : LossRow{};
  }
}

void mean_squared_error_forward_backward_kernel(const MeanSquaredError& op,
                                                float* predictions,
                                                float gradient_scale,
                                                int64_t begin,
                                                int64_t end) {
  LossRow* results = static_cast<LossRow*>(op.workspace);
  for (int64_t row = begin; row < end; ++row) {
    float* y = predictions + row * op.outputs;
    if (row < op.valid_rows) {
      results[row] = squared_row<true>(op, y, op.targets + row * op.outputs, y, gradient_scale);
    } else {
      results[row] = {};
      std::memset(y, 0, op.outputs * sizeof(float));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(mean_squared_error_forward_kernel);
HWY_EXPORT(mean_squared_error_forward_backward_kernel);

void mean_squared_error_forward(const MeanSquaredError& op,
                                const float* predictions,
                                double statistics[4]) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(mean_squared_error_forward_kernel);
  parallel_for(op.rows, grain_rows(op.outputs), [&](int64_t begin, int64_t end) {
    kernel(op, predictions, begin, end);
  });
  sum_loss_rows(static_cast<const LossRow*>(op.workspace), op.rows, statistics);
}

void mean_squared_error_forward_backward(const MeanSquaredError& op,
                                         float* predictions,
                                         float gradient_scale,
                                         double statistics[4]) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(mean_squared_error_forward_backward_kernel);
  parallel_for(op.rows, grain_rows(op.outputs), [&](int64_t begin, int64_t end) {
    kernel(op, predictions, gradient_scale, begin, end);
  });
  sum_loss_rows(static_cast<const LossRow*>(op.workspace), op.rows, statistics);
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
