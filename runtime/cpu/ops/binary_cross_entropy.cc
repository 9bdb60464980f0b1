#include "runtime/cpu/ops/binary_cross_entropy.h"

#include <cstring>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/binary_cross_entropy.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

template <bool kTrain>
HWY_INLINE LossRow binary_row(const BinaryCrossEntropy& op,
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
      // sigmoid(x) = 1 / (1 + e) for x >= 0, e / (1 + e) for x < 0, with the e that the loss has
      // needed.
      const Vec sigmoid = hn::Div(hn::IfThenElse(hn::Lt(x, zero), e, one), hn::Add(one, e));
      access.store(hn::Mul(hn::Sub(sigmoid, t), factor), gradient + i);
    }
  });
  const double outputs = static_cast<double>(op.outputs);
  return {.loss = losses.total() / outputs, .correct = correct.total() / outputs, .counted = 1};
}

void binary_cross_entropy_forward_kernel(const BinaryCrossEntropy& op,
                                         const float* logits,
                                         int64_t begin,
                                         int64_t end) {
  LossRow* results = static_cast<LossRow*>(op.workspace);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * op.outputs;
    results[row] = row < op.valid_rows
                       ? binary_row<false>(op, logits + at, op.targets + at, nullptr, 0)
                       : LossRow{};
  }
}

void binary_cross_entropy_forward_backward_kernel(
    const BinaryCrossEntropy& op, float* logits, float gradient_scale, int64_t begin, int64_t end) {
  LossRow* results = static_cast<LossRow*>(op.workspace);
  for (int64_t row = begin; row < end; ++row) {
    float* x = logits + row * op.outputs;
    if (row < op.valid_rows) {
      results[row] = binary_row<true>(op, x, op.targets + row * op.outputs, x, gradient_scale);
    } else {
      results[row] = {};
      std::memset(x, 0, op.outputs * sizeof(float));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(binary_cross_entropy_forward_kernel);
HWY_EXPORT(binary_cross_entropy_forward_backward_kernel);

void binary_cross_entropy_forward(const BinaryCrossEntropy& op,
                                  const float* logits,
                                  double statistics[4]) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(binary_cross_entropy_forward_kernel);
  parallel_for(op.rows, grain_rows(op.outputs), [&](int64_t begin, int64_t end) {
    kernel(op, logits, begin, end);
  });
  sum_loss_rows(static_cast<const LossRow*>(op.workspace), op.rows, statistics);
}

void binary_cross_entropy_forward_backward(const BinaryCrossEntropy& op,
                                           float* logits,
                                           float gradient_scale,
                                           double statistics[4]) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(binary_cross_entropy_forward_backward_kernel);
  parallel_for(op.rows, grain_rows(op.outputs), [&](int64_t begin, int64_t end) {
    kernel(op, logits, gradient_scale, begin, end);
  });
  sum_loss_rows(static_cast<const LossRow*>(op.workspace), op.rows, statistics);
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
