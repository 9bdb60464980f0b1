#include "runtime/graph/ops/preference_loss.h"

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/loss_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/preference_loss.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Pairs are few, so each is computed by itself. The functions of vectors give the same bits on all
// processors.
void preference_loss_kernel(const graph::PreferenceLoss<float>& op,
                            const graph::LaneContext& lane,
                            LossRow* results,
                            int64_t begin,
                            int64_t end) {
  for (int64_t pair = begin; pair < end; ++pair) {
    const float* const scores = op.scores + 2 * pair;
    float* const gradient = op.gradient == nullptr ? nullptr : op.gradient + 2 * pair;
    results[pair] = {};
    float d_z = 0;
    if (pair < lane.valid_rows) {
      float margin = scores[0] - scores[1];
      if (op.reference != nullptr) margin -= op.reference[2 * pair] - op.reference[2 * pair + 1];
      const float z = op.attributes.beta * margin;
      const Vec e = exp(hn::Neg(hn::Abs(set(z))));
      const auto of_pair = graph::PairLoss<float>::of(
          z, hn::GetLane(e), hn::GetLane(hn::Log1p(F32(), e)), op.attributes.label_smoothing);
      results[pair] = {.loss = of_pair.loss, .correct = z > 0 ? 1.0 : 0.0, .counted = 1};
      d_z = of_pair.d_z * (op.attributes.beta * lane.gradient_scale);
    }
    if (gradient == nullptr) continue;
    gradient[0] = d_z;
    gradient[1] = -d_z;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(preference_loss_kernel);

namespace {

void run(const graph::PreferenceLoss<float>& op) {
  run_loss(op, HWY_DYNAMIC_DISPATCH(preference_loss_kernel));
}

constexpr exec::Implementation kRows[] = {
    row<run, loss_workspace>(graph::OpKind::kPreferenceLoss, "simd")};

}  // namespace

constinit const exec::Implementations kCpuPreferenceLoss = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
