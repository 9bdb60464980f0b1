// The functions of pointwise programs on vectors. Compiled once per instruction set: see
// cpu/simd-inl.h. They have the same bits on AVX2 and AVX-512, keep NaN, and return infinity if the
// C library does; Highway's functions guarantee neither.

#if defined(LOCKSTEP_RUNTIME_CPU_OPS_POINTWISE_FUNCTIONS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_OPS_POINTWISE_FUNCTIONS_INL_H
#undef LOCKSTEP_RUNTIME_CPU_OPS_POINTWISE_FUNCTIONS_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_OPS_POINTWISE_FUNCTIONS_INL_H
#endif

#include <cmath>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"
#include "runtime/graph/pointwise_values.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {
namespace pointwise {

using Mask = hn::Mask<F32>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

HWY_INLINE Vec truth(Mask mask) { return hn::IfThenElseZero(mask, set(1.0f)); }
// NaN is true; Highway's Ne does not guarantee that on every target.
HWY_INLINE Mask is_true(Vec x) { return hn::Not(hn::Eq(x, hn::Zero(F32()))); }
HWY_INLINE Mask is_infinite(Vec x) { return hn::Eq(hn::Abs(x), set(kInfinity)); }
HWY_INLINE Vec keep_nan(Vec x, Vec y) { return hn::IfThenElse(hn::IsNaN(x), x, y); }

HWY_INLINE Vec sign(Vec x) {
  const Vec positive = hn::IfThenElse(hn::Gt(x, hn::Zero(F32())), set(1.0f), x);
  return hn::IfThenElse(hn::Lt(x, hn::Zero(F32())), set(-1.0f), positive);
}

HWY_INLINE Vec log(Vec x) {
  Vec y = hn::Log(F32(), x);
  y = hn::IfThenElse(hn::Eq(x, set(kInfinity)), x, y);
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(F32())), set(-kInfinity), y);
  return keep_nan(x, hn::IfThenElse(hn::Lt(x, hn::Zero(F32())), set(kNan), y));
}

// One element after the other, in double precision.
template <typename F>
HWY_INLINE Vec one_by_one(Vec a, Vec b, F f) {
  HWY_ALIGN float x[kVecLanes], y[kVecLanes];
  hn::Store(a, F32(), x);
  hn::Store(b, F32(), y);
  for (size_t k = 0; k < kVecLanes; ++k)
    x[k] = static_cast<float>(f(static_cast<double>(x[k]), static_cast<double>(y[k])));
  return hn::Load(F32(), x);
}

// Highway's sin and cos are accurate up to 39000; beyond (and for NaN), the C library is used.
template <typename V, typename S>
HWY_INLINE Vec periodic(Vec x, V vector, S scalar) {
  const auto small = hn::Le(hn::Abs(x), set(39000.0f));
  const Vec near = vector(hn::IfThenElseZero(small, x));
  if (hn::AllTrue(F32(), small)) return near;
  return hn::IfThenElse(small, near, one_by_one(x, x, [&](double v, double) { return scalar(v); }));
}
HWY_INLINE Vec sin(Vec x) {
  return periodic(
      x, [](Vec v) HWY_ATTR { return hn::Sin(F32(), v); }, [](double v) { return std::sin(v); });
}
HWY_INLINE Vec cos(Vec x) {
  return periodic(
      x, [](Vec v) HWY_ATTR { return hn::Cos(F32(), v); }, [](double v) { return std::cos(v); });
}

HWY_INLINE Vec within_one(Vec x, Vec y) {  // NaN outside [-1, 1]
  return hn::IfThenElse(hn::Le(hn::Abs(x), set(1.0f)), y, set(kNan));
}
HWY_INLINE Vec asinh(Vec x) {
  const Vec y = hn::CopySign(hn::Asinh(F32(), hn::Abs(x)), x);
  return hn::IfThenElse(hn::Lt(hn::Abs(x), set(kInfinity)), y, x);
}
HWY_INLINE Vec acosh(Vec x) {
  const Vec y = hn::IfThenElse(hn::Ge(x, set(1.0f)), hn::Acosh(F32(), x), set(kNan));
  return hn::IfThenElse(hn::Eq(x, set(kInfinity)), x, y);
}
HWY_INLINE Vec atanh(Vec x) {
  const Vec at_one =
      hn::IfThenElse(hn::Eq(hn::Abs(x), set(1.0f)), hn::CopySign(set(kInfinity), x), set(kNan));
  return hn::IfThenElse(hn::Lt(hn::Abs(x), set(1.0f)), hn::Atanh(F32(), x), at_one);
}
HWY_INLINE Vec sinh(Vec x) {
  // Above 1, uses h = e^(|x| / 2): h / 2 * h does not overflow before sinh does.
  const Vec half = exp(hn::Mul(hn::Abs(x), set(0.5f)));
  const Vec large = hn::Mul(hn::Mul(half, set(0.5f)), half);
  const Vec value = hn::Sub(large, hn::Div(set(0.25f), large));
  // The series to x^9: error 2e-8 at 1.
  const Vec square = hn::Mul(x, x);
  Vec p = hn::MulAdd(set(1.0f / 362880.0f), square, set(1.0f / 5040.0f));
  p = hn::MulAdd(p, square, set(1.0f / 120.0f));
  p = hn::MulAdd(p, square, set(1.0f / 6.0f));
  const Vec small = hn::MulAdd(hn::Mul(p, square), x, x);
  return hn::IfThenElse(hn::Gt(hn::Abs(x), set(1.0f)), hn::CopySign(value, x), small);
}
HWY_INLINE Vec cosh(Vec x) {
  const Vec half = exp(hn::Mul(hn::Abs(x), set(0.5f)));
  const Vec large = hn::Mul(hn::Mul(half, set(0.5f)), half);
  return hn::Add(large, hn::Div(set(0.25f), large));
}

// Near 0 by its series, which keeps the relative accuracy; otherwise by the tail of the normal
// distribution.
HWY_INLINE Vec erf(Vec x) {
  const Vec square = hn::Mul(x, x);
  Vec p = hn::MulAdd(set(1.1283791671e0f / 685440.0f), square, set(-1.1283791671e0f / 75600.0f));
  p = hn::MulAdd(p, square, set(1.1283791671e0f / 9360.0f));
  p = hn::MulAdd(p, square, set(-1.1283791671e0f / 1320.0f));
  p = hn::MulAdd(p, square, set(1.1283791671e0f / 216.0f));
  p = hn::MulAdd(p, square, set(-1.1283791671e0f / 42.0f));
  p = hn::MulAdd(p, square, set(1.1283791671e0f / 10.0f));
  p = hn::MulAdd(p, square, set(-1.1283791671e0f / 3.0f));
  p = hn::MulAdd(p, square, set(1.1283791671e0f));
  const Vec near = hn::Mul(x, p);
  const Vec magnitude = at_most(8.0f, hn::Abs(x));
  const Vec tail = normal_tail_times(hn::Mul(magnitude, set(1.41421356f)),
                                     exp(hn::Neg(hn::Mul(magnitude, magnitude))));
  const Vec far = hn::CopySign(hn::NegMulAdd(set(2.0f), tail, set(1.0f)), x);
  return keep_nan(x, hn::IfThenElse(hn::Lt(hn::Abs(x), set(0.7f)), near, far));
}

HWY_INLINE Vec softplus(Vec x) {
  const Vec tail = hn::Log1p(F32(), exp(hn::Neg(hn::Abs(x))));
  return keep_nan(x, hn::Add(at_least(0.0f, x), tail));
}

// pow(a, b): e^(b log |a|) in double precision, so that large exponents stay accurate; then the
// sign of a negative a.
HWY_INLINE Vec pow(Vec a, Vec b) {
  constexpr double kFar = 200;  // e^200 exceeds every float, e^-200 is below every float
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, decltype(d64)> half;
  HWY_ALIGN float base[kVecLanes], exponent[kVecLanes];
  hn::Store(hn::Abs(a), F32(), base);
  hn::Store(b, F32(), exponent);
  for (size_t k = 0; k < kVecLanes; k += hn::Lanes(d64)) {
    const auto x = hn::PromoteTo(d64, hn::Load(half, base + k));
    const auto y = hn::PromoteTo(d64, hn::Load(half, exponent + k));
    const auto infinity = hn::Set(d64, std::numeric_limits<double>::infinity());
    auto log = hn::Log(d64, x);
    log = hn::IfThenElse(hn::Eq(x, infinity), infinity, log);
    log = hn::IfThenElse(hn::Eq(x, hn::Zero(d64)), hn::Neg(infinity), log);
    // Any power of 1 is 1, infinite powers included.
    const auto of_one = hn::And(hn::Eq(x, hn::Set(d64, 1.0)), hn::Eq(y, y));
    const auto product = hn::IfThenZeroElse(of_one, hn::Mul(y, log));
    const auto far = hn::Set(d64, kFar);
    auto bounded = hn::IfThenElse(hn::Gt(product, far), far, product);
    bounded = hn::IfThenElse(hn::Lt(product, hn::Neg(far)), hn::Neg(far), bounded);
    auto result = hn::Exp(d64, bounded);
    result = hn::IfThenElse(hn::Or(hn::IsNaN(product), hn::IsNaN(x)), hn::Add(x, product), result);
    hn::Store(hn::DemoteTo(half, result), half, base + k);
  }
  Vec power = hn::Load(F32(), base);
  // Some targets round an overflow to the largest float.
  const Vec largest = set(std::numeric_limits<float>::max());
  power = hn::IfThenElse(hn::Ge(power, largest), set(kInfinity), power);
  const Vec half_b = hn::Mul(b, set(0.5f)), zero = hn::Zero(F32());
  const auto is_integer = hn::Eq(hn::Floor(b), b);
  const auto odd = hn::And(is_integer, hn::Ne(hn::Floor(half_b), half_b));
  power = hn::IfThenElse(odd, hn::CopySign(power, a), power);
  const auto no_number =
      hn::And(hn::And(hn::Lt(a, zero), hn::Gt(a, set(-kInfinity))), hn::Not(is_integer));
  power = hn::IfThenElse(no_number, set(kNan), power);
  return hn::IfThenElse(hn::Or(hn::Eq(b, zero), hn::Eq(a, set(1.0f))), set(1.0f), power);
}

// Exact, as in the C library.
HWY_INLINE Vec fmod(Vec a, Vec b) {
  return one_by_one(a, b, [](double x, double y) { return std::fmod(x, y); });
}
HWY_INLINE Vec mod(Vec a, Vec b) {
  const Vec rest = fmod(a, b), zero = hn::Zero(F32());
  const auto other_sign = hn::Xor(truth(hn::Lt(rest, zero)), truth(hn::Lt(b, zero)));
  const auto add = hn::And(hn::Ne(rest, zero), is_true(other_sign));
  return hn::IfThenElse(add, hn::Add(rest, b), rest);
}

HWY_INLINE Vec min(Vec a, Vec b) {
  return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
}
HWY_INLINE Vec max(Vec a, Vec b) {
  return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
}

}  // namespace pointwise
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_OPS_POINTWISE_FUNCTIONS_INL_H
