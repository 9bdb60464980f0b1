#include "runtime/graph/ops/soft_cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/loss_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/soft_cross_entropy.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// A row's sums add up those of its chunks in double precision, as in softmax_cross_entropy.
constexpr int64_t kSoftChunk = 4096;

// Over the classes, with d = x - largest.
struct SoftSums {
  double exponentials = 0;  // e^d
  double targets = 0;       // t
  double wanted = 0;        // t d
  double distances = 0;     // d
};

// If kStore, `exponentials` (may be x itself) receives e^d.
template <bool kStore>
HWY_INLINE SoftSums
soft_sums(const float* x, const float* t, float* exponentials, int64_t classes, float largest) {
  const Vec largest_v = set(largest);
  SoftSums sums;
  for (int64_t begin = 0; begin < classes; begin += kSoftChunk) {
    RowSum of_exponentials, of_targets, of_wanted, of_distances;
    for_each_row_vector(std::min(kSoftChunk, classes - begin),
                        [&](size_t offset, auto part, auto access) HWY_ATTR {
                          const size_t i = begin + offset;
                          const Vec d = access.keep(hn::Sub(access.load(x + i), largest_v));
                          const Vec target = access.load(t + i);
                          const Vec e = exp(d);
                          if constexpr (kStore) access.store(e, exponentials + i);
                          of_exponentials.add(part, access.keep(e));
                          of_targets.add(part, target);
                          of_wanted.add_product(part, target, d);
                          of_distances.add(part, d);
                        });
    sums.exponentials += of_exponentials.total();
    sums.targets += of_targets.total();
    sums.wanted += of_wanted.total();
    sums.distances += of_distances.total();
  }
  return sums;
}

HWY_INLINE int64_t first_equal(const float* x, int64_t n, float value) {
  return std::find(x, x + n, value) - x;
}

template <bool kTrain>
HWY_INLINE LossRow soft_row(const graph::SoftCrossEntropy<float>& op,
                            int64_t row,
                            float gradient_scale) {
  const float* const x = op.logits + row * op.classes;
  const float* const t = op.targets + row * op.classes;
  float* const gradient = kTrain ? op.gradient + row * op.classes : nullptr;  // may be x
  const float largest = row_max(x, op.classes);
  // Read before the sums, which may overwrite the logits.
  const bool correct =
      first_equal(x, op.classes, largest) == first_equal(t, op.classes, row_max(t, op.classes));
  const SoftSums sums = soft_sums<kTrain>(x, t, gradient, op.classes, largest);
  const double smoothing = op.label_smoothing, kept = 1 - smoothing;
  const double each = smoothing / static_cast<double>(op.classes);
  const double total = kept * sums.targets + smoothing;
  if constexpr (kTrain) {
    const Vec factor = set(static_cast<float>(total * gradient_scale / sums.exponentials));
    const Vec share = set(static_cast<float>(kept * gradient_scale));
    const Vec offset = set(static_cast<float>(-each * gradient_scale));
    for_each_vector(op.classes, [&](size_t i, auto access) HWY_ATTR {
      const Vec p = hn::MulAdd(access.load(gradient + i), factor, offset);
      access.store(hn::NegMulAdd(access.load(t + i), share, p), gradient + i);
    });
  }
  return {.loss = total * std::log(sums.exponentials) - kept * sums.wanted - each * sums.distances,
          .correct = correct ? 1.0 : 0.0,
          .counted = 1};
}

void soft_cross_entropy_kernel(const graph::SoftCrossEntropy<float>& op,
                               const graph::LaneContext& lane,
                               LossRow* results,
                               int64_t begin,
                               int64_t end) {
  compute_loss_rows(op, lane, results, begin, end, [&](int64_t row) HWY_ATTR {
    return op.gradient != nullptr ? soft_row<true>(op, row, lane.gradient_scale)
                                  : soft_row<false>(op, row, lane.gradient_scale);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(soft_cross_entropy_kernel);

namespace {

void run(const graph::SoftCrossEntropy<float>& op) {
  run_loss(op, HWY_DYNAMIC_DISPATCH(soft_cross_entropy_kernel));
}

constexpr exec::Implementation kRows[] = {
    row<run, loss_workspace>(graph::OpKind::kSoftCrossEntropy, "simd")};

}  // namespace

constinit const exec::Implementations kCpuSoftCrossEntropy = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
