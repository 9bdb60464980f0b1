#include "runtime/cpu/ops/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/softmax_cross_entropy.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Sums over a row add up the sums of chunks in double precision: a vocabulary of 200,000 would cost
// a float three digits.
constexpr int64_t kChunk = 4096;

struct RowTotals {
  double exponentials = 0;  // sum of e^(x - largest)
  double distances = 0;     // sum of x - largest; with label smoothing only
};

// The totals of one row; `exponentials` (may be x itself) receives e^(x - largest) where it is
// given.
template <bool kStore, bool kSmooth>
HWY_INLINE RowTotals
row_totals(const float* x, float* exponentials, int64_t classes, float largest) {
  const Vec largest_v = set(largest);
  RowTotals totals;
  for (int64_t begin = 0; begin < classes; begin += kChunk) {
    RowSum exponential_sum, distance_sum;
    for_each_row_vector(std::min(kChunk, classes - begin),
                        [&](size_t offset, auto part, auto access) HWY_ATTR {
                          const size_t i = begin + offset;
                          const Vec distance = hn::Sub(access.load(x + i), largest_v);
                          const Vec e = exp(distance);
                          if constexpr (kStore) access.store(e, exponentials + i);
                          exponential_sum.add(part, access.keep(e));
                          if constexpr (kSmooth) distance_sum.add(part, access.keep(distance));
                        });
    totals.exponentials += exponential_sum.total();
    if constexpr (kSmooth) totals.distances += distance_sum.total();
  }
  return totals;
}

// The second target of a row that counts; its own where it has no other.
HWY_INLINE int32_t other_target(const SoftmaxCrossEntropy& op, int64_t row) {
  const int32_t other = op.mix == 1 ? -1 : op.targets[std::min(op.rows, op.valid_rows) - 1 - row];
  return other >= 0 ? other : op.targets[row];
}

// One row that counts. `gradient` is null for the forward pass alone, else x, the row's logits.
template <bool kTrain>
HWY_INLINE LossRow softmax_row(const SoftmaxCrossEntropy& op,
                               int64_t row,
                               const float* x,
                               float* gradient,
                               float gradient_scale) {
  const int32_t target = op.targets[row], other = other_target(op, row);
  const double own_share = other == target ? 1 : op.mix;
  const int64_t classes = op.classes;
  const double smoothing = op.label_smoothing, uniform = smoothing / static_cast<double>(classes);
  const float largest = row_max(x, classes);
  const float target_logit = x[target];
  // Read before the totals, which may lie over the logits.
  double wanted_logit = target_logit;
  if (other != target) wanted_logit = own_share * wanted_logit + (1 - own_share) * x[other];
  const bool correct = target_logit == largest && row_max(x, target) < largest;
  const RowTotals totals = smoothing > 0 ? row_totals<kTrain, true>(x, gradient, classes, largest)
                                         : row_totals<kTrain, false>(x, gradient, classes, largest);
  const double log_sum = std::log(totals.exponentials);
  const double target_loss = log_sum + (static_cast<double>(largest) - wanted_logit);
  const double mean_loss = log_sum - totals.distances / static_cast<double>(classes);
  const double loss =
      smoothing > 0 ? (1 - smoothing) * target_loss + smoothing * mean_loss : target_loss;
  if constexpr (kTrain) {
    const Vec factor = set(static_cast<float>(gradient_scale / totals.exponentials));
    const Vec offset = set(static_cast<float>(-uniform * gradient_scale));
    for_each_vector(classes, [&](size_t i, auto access) HWY_ATTR {
      access.store(hn::MulAdd(access.load(gradient + i), factor, offset), gradient + i);
    });
    const double targets = (1 - smoothing) * gradient_scale;
    gradient[target] -= static_cast<float>(targets * own_share);
    if (other != target) gradient[other] -= static_cast<float>(targets * (1 - own_share));
  }
  return {.loss = loss, .correct = correct ? 1.0 : 0.0, .counted = 1};
}

HWY_INLINE bool counts(const SoftmaxCrossEntropy& op, int64_t row) {
  return row < op.valid_rows && op.targets[row] >= 0;
}

void softmax_forward_kernel(const SoftmaxCrossEntropy& op,
                            const float* logits,
                            int64_t begin,
                            int64_t end) {
  LossRow* results = static_cast<LossRow*>(op.workspace);
  for (int64_t row = begin; row < end; ++row) {
    results[row] = counts(op, row)
                       ? softmax_row<false>(op, row, logits + row * op.classes, nullptr, 0)
                       : LossRow{};
  }
}

void softmax_forward_backward_kernel(const SoftmaxCrossEntropy& op,
                                     float* logits,
                                     float gradient_scale,
                                     int64_t begin,
                                     int64_t end) {
  LossRow* results = static_cast<LossRow*>(op.workspace);
  for (int64_t row = begin; row < end; ++row) {
    float* x = logits + row * op.classes;
    if (counts(op, row)) {
      results[row] = softmax_row<true>(op, row, x, x, gradient_scale);
    } else {
      results[row] = {};
      std::memset(x, 0, op.classes * sizeof(float));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(softmax_forward_kernel);
HWY_EXPORT(softmax_forward_backward_kernel);

void softmax_cross_entropy_forward(const SoftmaxCrossEntropy& op,
                                   const float* logits,
                                   double statistics[4]) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(softmax_forward_kernel);
  parallel_for(op.rows, grain_rows(op.classes), [&](int64_t begin, int64_t end) {
    kernel(op, logits, begin, end);
  });
  sum_loss_rows(static_cast<const LossRow*>(op.workspace), op.rows, statistics);
}

void softmax_cross_entropy_forward_backward(const SoftmaxCrossEntropy& op,
                                            float* logits,
                                            float gradient_scale,
                                            double statistics[4]) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(softmax_forward_backward_kernel);
  parallel_for(op.rows, grain_rows(op.classes), [&](int64_t begin, int64_t end) {
    kernel(op, logits, gradient_scale, begin, end);
  });
  sum_loss_rows(static_cast<const LossRow*>(op.workspace), op.rows, statistics);
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
