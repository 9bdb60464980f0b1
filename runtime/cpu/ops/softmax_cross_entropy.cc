#include "runtime/cpu/ops/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/softmax_cross_entropy.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// A row's sum adds up the sums of its chunks in double precision: with a vocabulary of 200,000, a
// float would lose three digits.
constexpr int64_t kChunk = 4096;

struct RowTotals {
  double exponentials = 0;  // sum of e^(x - largest)
  double distances = 0;     // sum of x - largest, times weights; only with label smoothing
};

// The totals of one row. If kStore, `exponentials` (may be x itself) receives e^(x - largest).
template <bool kStore, bool kSmooth>
HWY_INLINE RowTotals row_totals(
    const float* x, float* exponentials, int64_t classes, float largest, const float* weights) {
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
                          if constexpr (kSmooth) {
                            const Vec w = weights == nullptr ? set(1.0f) : access.load(weights + i);
                            distance_sum.add(part, access.keep(hn::Mul(w, distance)));
                          }
                        });
    totals.exponentials += exponential_sum.total();
    if constexpr (kSmooth) totals.distances += distance_sum.total();
  }
  return totals;
}

// The second target of a counted row, with which mixup mixes its own; its own target if it has no
// other.
HWY_INLINE int32_t other_target(const graph::SoftmaxCrossEntropy<float>& op,
                                const graph::LaneContext& lane,
                                int64_t row) {
  const int64_t counted = std::min(op.rows, lane.valid_rows);
  const int32_t other = lane.mix == 1 ? -1 : op.targets[counted - 1 - row];
  return other >= 0 ? other : op.targets[row];
}

// Whether fewer than five logits are larger than the target's; equal logits before it count as
// larger, and so does NaN.
HWY_INLINE bool is_among_five(const float* x, int64_t classes, int32_t target) {
  const float threshold = x[target];
  int32_t smaller = 0;
  for (int64_t i = 0; i < target; ++i) smaller += x[i] < threshold ? 1 : 0;
  for (int64_t i = target + 1; i < classes; ++i) smaller += x[i] <= threshold ? 1 : 0;
  return classes - 1 - smaller < 5;
}

// Computes the gradient of a row with class weights. At first `gradient` has the exponentials;
// `scale` turns these into the probabilities times gradient_scale.
HWY_INLINE void weighted_gradient(const graph::SoftmaxCrossEntropy<float>& op,
                                  float* gradient,
                                  int32_t target,
                                  double weight,
                                  double scale,
                                  double gradient_scale) {
  const double smoothing = op.label_smoothing, each = smoothing / static_cast<double>(op.classes);
  const double of_target = (1 - smoothing) * weight;
  const Vec factor = set(static_cast<float>((of_target + each * op.weight_sum) * scale));
  const Vec uniform = set(static_cast<float>(-each * gradient_scale));
  for_each_vector(op.classes, [&](size_t i, auto access) HWY_ATTR {
    const Vec smoothed = hn::Mul(access.load(op.weights + i), uniform);
    access.store(hn::MulAdd(access.load(gradient + i), factor, smoothed), gradient + i);
  });
  gradient[target] -= static_cast<float>(of_target * gradient_scale);
}

// Computes one counted row.
template <bool kTrain>
HWY_INLINE LossRow softmax_row(const graph::SoftmaxCrossEntropy<float>& op,
                               const graph::LaneContext& lane,
                               int64_t row) {
  const float* const x = op.logits + row * op.stride;
  float* const gradient = kTrain ? op.gradient + row * op.stride : nullptr;  // may be x
  const float gradient_scale =
      op.gradient_scales == nullptr ? lane.gradient_scale : op.gradient_scales[row];
  const int32_t target = op.targets[row], other = other_target(op, lane, row);
  const double first_share = other == target ? 1 : lane.mix;
  const int64_t classes = op.classes;
  const double smoothing = op.label_smoothing, uniform = smoothing / static_cast<double>(classes);
  const float largest = row_max(x, classes);
  const float target_logit = x[target];
  // Read before the totals, which may overwrite the logits.
  double wanted_logit = target_logit;
  if (other != target) wanted_logit = first_share * wanted_logit + (1 - first_share) * x[other];
  const bool correct = target_logit == largest && row_max(x, target) < largest;
  const float* const weights = op.weights;
  const RowTotals totals = smoothing > 0
                               ? row_totals<kTrain, true>(x, gradient, classes, largest, weights)
                               : row_totals<kTrain, false>(x, gradient, classes, largest, weights);
  const double log_sum = std::log(totals.exponentials);
  const double target_loss = log_sum + (static_cast<double>(largest) - wanted_logit);
  const double weight = weights == nullptr ? 1 : weights[target];
  const double mean_weight = weights == nullptr ? 1 : op.weight_sum / static_cast<double>(classes);
  const double mean_loss = mean_weight * log_sum - totals.distances / static_cast<double>(classes);
  double loss = weight * target_loss;
  if (smoothing > 0) loss = (1 - smoothing) * weight * target_loss + smoothing * mean_loss;
  if constexpr (kTrain) {
    if (weights != nullptr) {
      weighted_gradient(
          op, gradient, target, weight, gradient_scale / totals.exponentials, gradient_scale);
    } else {
      const Vec factor = set(static_cast<float>(gradient_scale / totals.exponentials));
      const Vec offset = set(static_cast<float>(-uniform * gradient_scale));
      for_each_vector(classes, [&](size_t i, auto access) HWY_ATTR {
        access.store(hn::MulAdd(access.load(gradient + i), factor, offset), gradient + i);
      });
      const double targets = (1 - smoothing) * gradient_scale;
      gradient[target] -= static_cast<float>(targets * first_share);
      if (other != target) gradient[other] -= static_cast<float>(targets * (1 - first_share));
    }
  }
  LossRow result = {.loss = loss, .correct = correct ? 1.0 : 0.0, .counted = weight};
  if constexpr (!kTrain) result.top5 = is_among_five(x, classes, target) ? 1 : 0;
  return result;
}

void softmax_kernel(const graph::SoftmaxCrossEntropy<float>& op,
                    const graph::LaneContext& lane,
                    LossRow* results,
                    int64_t begin,
                    int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    if (op.first_row + row >= lane.valid_rows || op.targets[row] < 0) {
      results[row] = {};
      if (op.gradient != nullptr) std::fill_n(op.gradient + row * op.stride, op.classes, 0.0f);
    } else {
      results[row] = op.gradient != nullptr ? softmax_row<true>(op, lane, row)
                                            : softmax_row<false>(op, lane, row);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(softmax_kernel);

void softmax_cross_entropy_rows(const graph::SoftmaxCrossEntropy<float>& op,
                                const graph::LaneContext& lane,
                                LossRow* results) {
  LOCKSTEP_CHECK(op.gradient == nullptr || op.gradient == op.logits || op.stride == op.classes,
                 "the gradient of padded rows must be computed in place");
  in_parallel(
      op.rows, grain_rows(op.classes), HWY_DYNAMIC_DISPATCH(softmax_kernel), op, lane, results);
}

namespace {

void run(const graph::SoftmaxCrossEntropy<float>& op) {
  auto* const results = op.call.workspace<LossRow>();
  softmax_cross_entropy_rows(op, op.call.lane(), results);
  sum_loss_rows(results, op.rows, op.statistics);
}

// Rows of logits are padded only on GPUs.
bool supports(const graph::SoftmaxCrossEntropy<float>& op) { return op.stride == op.classes; }

constexpr exec::Implementation kRows[] = {
    row<run, loss_workspace, supports>(graph::OpKind::kSoftmaxCrossEntropy, "simd")};

}  // namespace

constinit const exec::Implementations kCpuSoftmaxCrossEntropy = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
