#include "runtime/graph/ops/pointwise_losses.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/loss_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/pointwise_losses.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// The functions below compute one row and, in training, overwrite the predictions with their
// gradient.
template <bool kTrain>
HWY_INLINE LossRow binary_row(const graph::PointwiseLoss<float>& op,
                              const float* logits,
                              const float* targets,
                              float* gradient,
                              float gradient_scale) {
  const Vec zero = set(0.0f), one = set(1.0f);
  const Vec factor = set(
      static_cast<float>(static_cast<double>(gradient_scale) / static_cast<double>(op.outputs)));
  RowSum losses, correct;
  for_each_row_vector(op.outputs, [&](size_t i, auto part, auto access) HWY_ATTR {
    const Vec x = access.load(logits + i), t = access.load(targets + i);
    const Vec e = exp(hn::Neg(hn::Abs(x)));
    const Vec loss = hn::Add(hn::NegMulAdd(x, t, at_least(0.0f, x)), hn::Log1p(F32(), e));
    losses.add(part, access.keep(loss));
    const auto wrong = hn::Xor(hn::VecFromMask(F32(), hn::Gt(x, zero)),
                               hn::VecFromMask(F32(), hn::Gt(t, set(0.5f))));
    correct.add(part, access.keep(hn::IfThenZeroElse(hn::MaskFromVec(wrong), one)));
    if constexpr (kTrain) {
      // sigmoid(x) = 1 / (1 + e) for x >= 0, e / (1 + e) for x < 0, with the same e as the loss.
      const Vec sigmoid = hn::Div(hn::IfThenElse(hn::Lt(x, zero), e, one), hn::Add(one, e));
      access.store(hn::Mul(hn::Sub(sigmoid, t), factor), gradient + i);
    }
  });
  const double outputs = static_cast<double>(op.outputs);
  if (op.weighted) {  // one output
    const float weight = (1 - targets[0]) * op.class_weights[0] + targets[0] * op.class_weights[1];
    if constexpr (kTrain) gradient[0] *= weight;
    return {.loss = static_cast<double>(losses.total()) * weight,
            .correct = correct.total(),
            .counted = weight};
  }
  return {.loss = losses.total() / outputs, .correct = correct.total() / outputs, .counted = 1};
}

// The same with weights of yes.
template <bool kTrain>
HWY_INLINE LossRow positive_row(const graph::PointwiseLoss<float>& op,
                                const float* logits,
                                const float* targets,
                                float* gradient,
                                float gradient_scale) {
  const Vec zero = set(0.0f), one = set(1.0f);
  const Vec factor = set(
      static_cast<float>(static_cast<double>(gradient_scale) / static_cast<double>(op.outputs)));
  RowSum losses, correct;
  for_each_row_vector(op.outputs, [&](size_t i, auto part, auto access) HWY_ATTR {
    const Vec x = access.load(logits + i), t = access.load(targets + i);
    const Vec no = hn::Sub(one, t), yes = hn::Mul(access.load(op.pos_weight + i), t);
    const Vec weight = hn::Add(no, yes);
    const Vec e = exp(hn::Neg(hn::Abs(x)));
    const Vec far = hn::MulAdd(no, at_least(0.0f, x), hn::Mul(yes, at_least(0.0f, hn::Neg(x))));
    losses.add(part, access.keep(hn::MulAdd(weight, hn::Log1p(F32(), e), far)));
    const auto wrong = hn::Xor(hn::VecFromMask(F32(), hn::Gt(x, zero)),
                               hn::VecFromMask(F32(), hn::Gt(t, set(0.5f))));
    correct.add(part, access.keep(hn::IfThenZeroElse(hn::MaskFromVec(wrong), one)));
    if constexpr (kTrain) {
      // 1 - sigmoid(x), with the same e.
      const Vec rest = hn::Div(hn::IfThenElse(hn::Lt(x, zero), one, e), hn::Add(one, e));
      access.store(hn::Mul(hn::NegMulAdd(weight, rest, no), factor), gradient + i);
    }
  });
  const double outputs = static_cast<double>(op.outputs);
  return {.loss = losses.total() / outputs, .correct = correct.total() / outputs, .counted = 1};
}

template <bool kTrain>
HWY_INLINE LossRow absolute_row(const graph::PointwiseLoss<float>& op,
                                const float* y,
                                const float* target,
                                float* gradient,
                                float gradient_scale) {
  const Vec zero = set(0.0f);
  const Vec factor = set(
      static_cast<float>(static_cast<double>(gradient_scale) / static_cast<double>(op.outputs)));
  RowSum distances;
  for_each_row_vector(op.outputs, [&](size_t i, auto part, auto access) HWY_ATTR {
    const Vec difference = hn::Sub(access.load(y + i), access.load(target + i));
    distances.add(part, access.keep(hn::Abs(difference)));
    if constexpr (kTrain) {
      const Vec slope = hn::IfThenElse(hn::Lt(difference, zero), hn::Neg(factor), difference);
      access.store(hn::IfThenElse(hn::Gt(difference, zero), factor, slope), gradient + i);
    }
  });
  return {.loss = static_cast<double>(distances.total()) / static_cast<double>(op.outputs),
          .correct = 0,
          .counted = 1};
}

template <bool kTrain>
HWY_INLINE LossRow huber_row(const graph::PointwiseLoss<float>& op,
                             const float* y,
                             const float* target,
                             float* gradient,
                             float gradient_scale) {
  const Vec delta = set(op.delta), half = set(0.5f);
  const Vec factor = set(
      static_cast<float>(static_cast<double>(gradient_scale) / static_cast<double>(op.outputs)));
  RowSum losses;
  for_each_row_vector(op.outputs, [&](size_t i, auto part, auto access) HWY_ATTR {
    const Vec difference = hn::Sub(access.load(y + i), access.load(target + i));
    const Vec distance = hn::Abs(difference);
    const Vec square = hn::Mul(half, hn::Mul(distance, distance));
    const Vec line = hn::Mul(delta, hn::NegMulAdd(half, delta, distance));
    losses.add(part, access.keep(hn::IfThenElse(hn::Lt(distance, delta), square, line)));
    if constexpr (kTrain) {
      const Vec slope = at_most(op.delta, at_least(-op.delta, difference));
      access.store(hn::Mul(slope, factor), gradient + i);
    }
  });
  return {.loss = static_cast<double>(losses.total()) / static_cast<double>(op.outputs),
          .correct = 0,
          .counted = 1};
}

template <bool kTrain>
HWY_INLINE LossRow squared_row(const graph::PointwiseLoss<float>& op,
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

template <bool kTrain>
HWY_INLINE LossRow loss_row(const graph::PointwiseLoss<float>& op,
                            int64_t row,
                            float gradient_scale) {
  const int64_t at = row * op.outputs;
  float* const gradient = kTrain ? op.gradient + at : nullptr;
  const float* const x = op.predictions + at;
  const float* const t = op.targets + at;
  switch (op.kind) {
    case graph::OpKind::kMeanSquaredError:
      return squared_row<kTrain>(op, x, t, gradient, gradient_scale);
    case graph::OpKind::kMeanAbsoluteError:
      return absolute_row<kTrain>(op, x, t, gradient, gradient_scale);
    case graph::OpKind::kHuber: return huber_row<kTrain>(op, x, t, gradient, gradient_scale);
    default: break;
  }
  if (op.pos_weight != nullptr) return positive_row<kTrain>(op, x, t, gradient, gradient_scale);
  return binary_row<kTrain>(op, x, t, gradient, gradient_scale);
}

void pointwise_loss_kernel(const graph::PointwiseLoss<float>& op,
                           const graph::LaneContext& lane,
                           LossRow* results,
                           int64_t begin,
                           int64_t end) {
  compute_loss_rows(op, lane, results, begin, end, [&](int64_t row) HWY_ATTR {
    return op.gradient != nullptr ? loss_row<true>(op, row, lane.gradient_scale)
                                  : loss_row<false>(op, row, lane.gradient_scale);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(pointwise_loss_kernel);

namespace {

void run(const graph::PointwiseLoss<float>& op) {
  run_loss(op, HWY_DYNAMIC_DISPATCH(pointwise_loss_kernel));
}

constexpr exec::Implementation kRows[] = {
    row<run, loss_workspace>(graph::OpKind::kBinaryCrossEntropy, "simd"),
    row<run, loss_workspace>(graph::OpKind::kMeanSquaredError, "simd"),
    row<run, loss_workspace>(graph::OpKind::kMeanAbsoluteError, "simd"),
    row<run, loss_workspace>(graph::OpKind::kHuber, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuPointwiseLosses = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
