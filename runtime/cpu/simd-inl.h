// Vector helpers of the CPU kernels. Compiled once per instruction set: include it only from a .cc
// file that Highway's foreach_target.h includes repeatedly. All results have the same bits on AVX2
// and AVX-512: elementwise functions use the same operations in the same order, and sums over a row
// use 16 virtual lanes for any vector width. Plain x86-64 has no fused multiply-add and differs in
// the last bits.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_SIMD_INL_H
#undef LOCKSTEP_RUNTIME_CPU_SIMD_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_SIMD_INL_H
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "runtime/base/half.h"
#include "runtime/graph/activation.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using Vec = hn::Vec<F32>;
using U32 = hn::RebindToUnsigned<F32>;

constexpr size_t kVecLanes = HWY_LANES(float);    // floats in a vector: 16, 8, 4 or 1
constexpr size_t kRowLanes = 16;                  // virtual lanes of a row reduction
constexpr size_t kParts = kRowLanes / kVecLanes;  // vectors that hold the virtual lanes
static_assert(kParts * kVecLanes == kRowLanes);

HWY_INLINE Vec set(float value) { return hn::Set(F32(), value); }

// ---- Numbers of 16 bits ----

// With the rounding rules of runtime/base/half.h. Numbers stay in vectors of floats until they are
// packed into the lower halves of words.
namespace half {

using U16 = hn::Rebind<uint16_t, F32>;
using I32 = hn::RebindToSigned<F32>;
using Bits = hn::Vec<U32>;

HWY_INLINE Bits bits_of(Vec v) { return hn::BitCast(U32(), v); }
HWY_INLINE Vec float_of(Bits bits) { return hn::BitCast(F32(), bits); }
HWY_INLINE Bits bits(uint32_t value) { return hn::Set(U32(), value); }
HWY_INLINE Bits magnitude(Vec v) { return hn::And(bits_of(v), bits(0x7fffffff)); }
// Compares bit patterns of non-negative floats as integers.
HWY_INLINE auto less(Bits a, uint32_t b) {
  return hn::RebindMask(U32(),
                        hn::Lt(hn::BitCast(I32(), a), hn::Set(I32(), static_cast<int32_t>(b))));
}

// Rounds to the nearest number with `kDropped` fewer mantissa bits, ties to even. A carry
// increments the exponent.
template <int kDropped>
HWY_INLINE Bits shorten(Bits number) {
  const Bits odd = hn::And(hn::ShiftRight<kDropped>(number), bits(1));
  const Bits up = hn::Add(hn::Add(number, bits((1u << (kDropped - 1)) - 1)), odd);
  return hn::And(up, bits(~((1u << kDropped) - 1)));
}

struct AsBF16 {
  static HWY_INLINE Vec round(Vec v) {
    const auto number = less(magnitude(v), 0x7f800001);
    return float_of(hn::IfThenElse(number, shorten<16>(bits_of(v)), bits(0x7fff0000)));
  }
  // The 16 bits of a rounded value.
  static HWY_INLINE Bits pack(Vec v) { return hn::ShiftRight<16>(bits_of(v)); }
  static HWY_INLINE Vec unpack(Bits packed) { return float_of(hn::ShiftLeft<16>(packed)); }
};

// Whether masked loads and stores of 16-bit numbers exist, which do not access the memory of other
// lanes.
constexpr bool kMaskedMemory = HWY_TARGET <= HWY_AVX3;

// All lanes, or the first `count`; the others are 0.
HWY_INLINE Bits load(const uint16_t* from) { return hn::PromoteTo(U32(), hn::LoadU(U16(), from)); }
HWY_INLINE Bits load(const uint16_t* from, size_t count) {
  if constexpr (kMaskedMemory)
    return hn::PromoteTo(U32(), hn::MaskedLoad(hn::FirstN(U16(), count), U16(), from));
  HWY_ALIGN uint16_t lanes[kVecLanes] = {};
  for (size_t k = 0; k < count; ++k) lanes[k] = from[k];
  return hn::PromoteTo(U32(), hn::Load(U16(), lanes));
}
HWY_INLINE auto narrow(Bits packed) { return hn::TruncateTo(U16(), packed); }
HWY_INLINE void store(Bits packed, uint16_t* to) { hn::StoreU(narrow(packed), U16(), to); }
HWY_INLINE void store(Bits packed, uint16_t* to, size_t count) {
  if constexpr (kMaskedMemory)
    return hn::BlendedStore(narrow(packed), hn::FirstN(U16(), count), U16(), to);
  HWY_ALIGN uint16_t lanes[kVecLanes];
  hn::Store(narrow(packed), U16(), lanes);
  for (size_t k = 0; k < count; ++k) to[k] = lanes[k];
}

}  // namespace half

// v as an array of T stores it.
template <typename T>
HWY_INLINE Vec as_stored(Vec v) {
  if constexpr (std::is_same_v<T, float>) {
    return v;
  } else {
    return half::AsBF16::round(v);
  }
}

// ---- Walking over arrays ----

// How a loop body reads and writes one vector: all of it, or, at the end of an array, its first
// `count` lanes. Never accesses memory beyond those lanes. Arrays store floats, or bfloat16, which
// is rounded to.
struct FullVector {
  HWY_INLINE Vec load(const float* from) const { return hn::LoadU(F32(), from); }
  HWY_INLINE Vec load(const BFloat16* from) const {
    return half::AsBF16::unpack(half::load(&from->bits));
  }
  template <typename T>
  HWY_INLINE Vec load_or(const T* from, float /*fallback*/) const {
    return load(from);
  }
  HWY_INLINE void store(Vec v, float* to) const { hn::StoreU(v, F32(), to); }
  HWY_INLINE void store(Vec v, BFloat16* to) const {
    half::store(half::AsBF16::pack(half::AsBF16::round(v)), &to->bits);
  }
  HWY_INLINE Vec keep(Vec v) const { return v; }
};

struct PartialVector {
  size_t count;

  // Lanes past the end read as zero.
  HWY_INLINE Vec load(const float* from) const { return load_or(from, 0.0f); }
  HWY_INLINE Vec load(const BFloat16* from) const {
    return half::AsBF16::unpack(half::load(&from->bits, count));
  }
  // Lanes past the end read as `fallback`.
  HWY_INLINE Vec load_or(const BFloat16* from, float fallback) const {
    return hn::IfThenElse(hn::FirstN(F32(), count), load(from), set(fallback));
  }
  HWY_INLINE Vec load_or(const float* from, float fallback) const {
    if constexpr (kMaskedMemory) {
      const auto mask = hn::FirstN(F32(), count);
      return hn::IfThenElse(mask, hn::MaskedLoad(mask, F32(), from), set(fallback));
    }
    HWY_ALIGN float lanes[kVecLanes];
    for (size_t k = 0; k < kVecLanes; ++k) lanes[k] = k < count ? from[k] : fallback;
    return hn::Load(F32(), lanes);
  }
  HWY_INLINE void store(Vec v, float* to) const {
    if constexpr (kMaskedMemory) return hn::BlendedStore(v, hn::FirstN(F32(), count), F32(), to);
    HWY_ALIGN float lanes[kVecLanes];
    hn::Store(v, F32(), lanes);
    for (size_t k = 0; k < count; ++k) to[k] = lanes[k];
  }
  HWY_INLINE void store(Vec v, BFloat16* to) const {
    half::store(half::AsBF16::pack(half::AsBF16::round(v)), &to->bits, count);
  }
  // Zeroes the lanes past the end, before computed values are added to a sum.
  HWY_INLINE Vec keep(Vec v) const { return hn::IfThenElseZero(hn::FirstN(F32(), count), v); }

 private:
  // The masked loads and stores of AVX2 and AVX-512 do not access the memory of other lanes. On
  // other targets, Highway emulates them by accessing the whole vector, which may extend beyond the
  // array.
  static constexpr bool kMaskedMemory = HWY_TARGET <= HWY_AVX2;
};

// Calls body(i, access) for each vector of [0, n); access is a FullVector or, for the last one, a
// PartialVector.
template <typename Body>
HWY_INLINE void for_each_vector(size_t n, Body&& body) {
  size_t i = 0;
  for (; i + kVecLanes <= n; i += kVecLanes) body(i, FullVector{});
  if (i < n) body(i, PartialVector{n - i});
}

template <size_t kPart, typename Body>
HWY_INLINE void each_part(Body&& body) {
  if constexpr (kPart < kParts) {
    body(std::integral_constant<size_t, kPart>{});
    each_part<kPart + 1>(body);
  }
}

// The same for row reductions: body(i, part, access). `part` (a compile-time constant) is the index
// of the vector of virtual lanes to which the elements i, i+1, ... belong: element e of the row is
// in virtual lane e % 16.
template <typename Body>
HWY_INLINE void for_each_row_vector(size_t n, Body&& body) {
  size_t i = 0;
  for (; i + kRowLanes <= n; i += kRowLanes) {
    each_part<0>([&](auto part) HWY_ATTR { body(i + part * kVecLanes, part, FullVector{}); });
  }
  each_part<0>([&](auto part) HWY_ATTR {
    const size_t at = i + part * kVecLanes;
    if (at + kVecLanes <= n) {
      body(at, part, FullVector{});
    } else if (at < n) {
      body(at, part, PartialVector{n - at});
    }
  });
}

// A sum over a row in 16 virtual lanes, combined by a fixed tree: lane k + lane k+8, then +4, +2,
// +1.
class RowSum {
 public:
  HWY_INLINE RowSum() {
    for (Vec& part : parts_) part = hn::Zero(F32());
  }
  template <typename Part>
  HWY_INLINE void add(Part part, Vec v) {
    parts_[part] = hn::Add(parts_[part], v);
  }
  // Adds a * b with one rounding.
  template <typename Part>
  HWY_INLINE void add_product(Part part, Vec a, Vec b) {
    parts_[part] = hn::MulAdd(a, b, parts_[part]);
  }
  HWY_INLINE float total() const {
    alignas(64) float lanes[kRowLanes];
    each_part<0>([&](auto part)
                     HWY_ATTR { hn::Store(parts_[part], F32(), lanes + part * kVecLanes); });
    for (size_t width = kRowLanes / 2; width > 0; width /= 2) {
      for (size_t k = 0; k < width; ++k) lanes[k] += lanes[k + width];
    }
    return lanes[0];
  }

 private:
  Vec parts_[kParts];
};

// The largest element of a row; NaN elements are ignored. -infinity for an empty row.
class RowMax {
 public:
  static constexpr float kNone = -std::numeric_limits<float>::infinity();

  HWY_INLINE RowMax() {
    for (Vec& part : parts_) part = set(kNone);
  }
  template <typename Part>
  HWY_INLINE void add(Part part, Vec v) {
    parts_[part] = hn::Max(v, parts_[part]);
  }
  HWY_INLINE float total() const {
    alignas(64) float lanes[kRowLanes];
    each_part<0>([&](auto part)
                     HWY_ATTR { hn::Store(parts_[part], F32(), lanes + part * kVecLanes); });
    float largest = lanes[0];
    for (size_t k = 1; k < kRowLanes; ++k) largest = lanes[k] > largest ? lanes[k] : largest;
    return largest;
  }

 private:
  Vec parts_[kParts];
};

template <typename T>
HWY_INLINE float row_sum(const T* x, size_t n) {
  RowSum sum;
  for_each_row_vector(
      n, [&](size_t i, auto part, auto access) HWY_ATTR { sum.add(part, access.load(x + i)); });
  return sum.total();
}

template <typename T>
HWY_INLINE float row_dot(const T* a, const T* b, size_t n) {
  RowSum sum;
  for_each_row_vector(n, [&](size_t i, auto part, auto access) HWY_ATTR {
    sum.add_product(part, access.load(a + i), access.load(b + i));
  });
  return sum.total();
}

template <typename T>
HWY_INLINE float row_max(const T* x, size_t n) {
  RowMax largest;
  for_each_row_vector(n, [&](size_t i, auto part, auto access) HWY_ATTR {
    largest.add(part, access.load_or(x + i, RowMax::kNone));
  });
  return largest.total();
}

// ---- Elementary functions ----

// Clamps to a bound from one side and keeps NaN. The min and max of AVX2 and AVX-512 return the
// second operand if either is NaN; on other targets, Highway may ignore NaN.
HWY_INLINE Vec at_most(float bound, Vec x) {
  if constexpr (HWY_TARGET <= HWY_AVX2) return hn::Min(set(bound), x);
  return hn::IfThenElse(hn::Gt(x, set(bound)), set(bound), x);
}
HWY_INLINE Vec at_least(float bound, Vec x) {
  if constexpr (HWY_TARGET <= HWY_AVX2) return hn::Max(set(bound), x);
  return hn::IfThenElse(hn::Lt(x, set(bound)), set(bound), x);
}

// e^x, within 2 ulp; 0 below x = -86.6 (no denormal results), infinity above 88.7; NaN stays NaN.
// Highway's Exp is not used because it turns NaN into 0, which would hide a diverged run.
//   e^x = 2^k e^r, k = round(x / ln 2), |r| <= ln(2)/2, e^r = 1 + r + r^2 Q(r) with Q minimax of
//   degree 4 (error 3e-9).
HWY_INLINE Vec exp(Vec x) {
  const Vec magic = set(
      12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, kept in the low mantissa bits
  const Vec bounded = at_most(89.0f, x);
  const Vec shifted = hn::MulAdd(bounded, set(1.44269504f), magic);
  const Vec k = hn::Sub(shifted, magic);
  Vec r = hn::NegMulAdd(
      k, set(0.693359375f), bounded);  // ln 2 in two parts, so that r is exact to the last bit
  r = hn::NegMulAdd(k, set(-2.12194440e-4f), r);
  Vec q = hn::MulAdd(set(1.3814539e-3f), r, set(8.3687452e-3f));
  q = hn::MulAdd(q, r, set(4.1668391e-2f));
  q = hn::MulAdd(q, r, set(0.16666520f));
  q = hn::MulAdd(q, r, set(0.49999993f));
  const Vec e = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), set(1.0f));
  // 2e * 2^(k-1), because 2^128 alone would overflow.
  const U32 u;
  const Vec scale =
      hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Add(hn::BitCast(u, shifted), hn::Set(u, 126))));
  return hn::IfThenZeroElse(hn::Lt(x, set(-86.6f)), hn::Mul(hn::Add(e, e), scale));
}

// s = 1 / (1 + e^-x) and 1 - s, each within 4 ulp; below x = -80, s stays at e^-80.
struct Sigmoid {
  Vec value, complement;
};
HWY_INLINE Sigmoid sigmoid(Vec x) {
  const Vec one = set(1.0f);
  const Vec e = exp(at_most(80.0f, hn::Neg(x)));
  const Vec value = hn::Div(one, hn::Add(one, e));
  return {value, hn::Mul(e, value)};
}

HWY_INLINE Vec tanh(Vec x) { return hn::Tanh(F32(), x); }

// The normal distribution's density e^(-x^2/2) / sqrt(2 pi) and its integral Phi(x) = (1 + erf(x /
// sqrt 2)) / 2.
struct Normal {
  Vec density, integral;
};

// Both share one exponential: for t = |x| / sqrt 2, erfc(t) = e^(-t^2) s P(s), s = 1 / (1 + 0.3 t),
// with P of degree 8 fitted for the least relative error on t in [0, 9.4] (2e-8). Absolute error of
// the integral below 1e-7; its negative tail keeps its relative accuracy.
HWY_INLINE Vec normal_tail_times(Vec magnitude, Vec gauss) {
  const Vec one = set(1.0f);
  const Vec s = hn::Div(one, hn::MulAdd(magnitude, set(0.3f * 0.70710678f), one));
  Vec p = hn::MulAdd(set(-0.1294069864f), s, set(0.4849538254f));
  p = hn::MulAdd(p, s, set(-0.5109044707f));
  p = hn::MulAdd(p, s, set(0.5459885104f));
  p = hn::MulAdd(p, s, set(-0.09331770134f));
  p = hn::MulAdd(p, s, set(0.2142852404f));
  p = hn::MulAdd(p, s, set(0.14852674f));
  p = hn::MulAdd(p, s, set(0.1706847067f));
  p = hn::MulAdd(p, s, set(0.1691901162f));
  return hn::Mul(hn::Mul(hn::Mul(p, s), set(0.5f)), gauss);
}

HWY_INLINE Normal normal(Vec x) {
  const Vec gauss = exp(hn::Mul(hn::Mul(x, x), set(-0.5f)));
  const Vec tail = normal_tail_times(hn::Abs(x), gauss);
  const Vec integral = hn::IfThenElse(hn::Lt(x, hn::Zero(F32())), tail, hn::Sub(set(1.0f), tail));
  return {hn::Mul(gauss, set(0.398942280f)), integral};
}

// ---- Activations ----

// The argument of the sigmoid in GELU's tanh approximation: x (1 + tanh(u)) / 2 = x sigmoid(2u), 2u
// = 2 sqrt(2/pi) (x + 0.044715 x^3) = x (a + b x^2).
constexpr float kGeluLinear = 1.595769122f;
constexpr float kGeluCubic = 0.071354816f;

// The activation's value at pre-activation x.
template <Activation kKind>
HWY_INLINE Vec activate(Vec x) {
  if constexpr (kKind == Activation::kRelu) {
    return at_least(0.0f, x);
  } else if constexpr (kKind == Activation::kRelu6) {
    return at_most(6.0f, at_least(0.0f, x));
  } else if constexpr (kKind == Activation::kGeluTanh) {
    const Vec twice_u = hn::Mul(x, hn::MulAdd(hn::Mul(x, x), set(kGeluCubic), set(kGeluLinear)));
    return hn::Div(x, hn::Add(set(1.0f), exp(hn::Neg(twice_u))));
  } else if constexpr (kKind == Activation::kGeluErf) {
    return hn::Mul(x, normal(x).integral);
  } else if constexpr (kKind == Activation::kSilu) {
    return hn::Div(x, hn::Add(set(1.0f), exp(hn::Neg(x))));
  } else if constexpr (kKind == Activation::kTanh) {
    return tanh(x);
  } else {
    return x;
  }
}

// The gradient before the activation, from the gradient after it. `saved` is the pre-activation if
// saves_pre_activation(kKind), otherwise the activation's output.
template <Activation kKind>
HWY_INLINE Vec activation_backward(Vec d_y, Vec saved) {
  const Vec one = set(1.0f);
  if constexpr (kKind == Activation::kRelu) {
    return hn::IfThenElseZero(hn::Gt(saved, hn::Zero(F32())), d_y);
  } else if constexpr (kKind == Activation::kRelu6) {
    const auto between = hn::And(hn::Gt(saved, hn::Zero(F32())), hn::Lt(saved, set(6.0f)));
    return hn::IfThenElseZero(between, d_y);
  } else if constexpr (kKind == Activation::kGeluTanh) {
    // s + x s (1 - s) (a + 3 b x^2). Beyond |x| = 100, s (1 - s) vanishes; the clamp keeps x^2 from
    // overflowing.
    const Vec x = at_least(-100.0f, at_most(100.0f, saved));
    const Vec x2 = hn::Mul(x, x);
    const Sigmoid s = sigmoid(hn::Mul(x, hn::MulAdd(x2, set(kGeluCubic), set(kGeluLinear))));
    const Vec slope = hn::Mul(x, hn::MulAdd(x2, set(3.0f * kGeluCubic), set(kGeluLinear)));
    return hn::Mul(d_y, hn::Mul(s.value, hn::MulAdd(slope, s.complement, one)));
  } else if constexpr (kKind == Activation::kGeluErf) {
    const Normal at = normal(saved);
    return hn::Mul(d_y, hn::MulAdd(saved, at.density, at.integral));
  } else if constexpr (kKind == Activation::kSilu) {
    const Vec x = at_least(-100.0f, saved);
    const Sigmoid s = sigmoid(x);
    return hn::Mul(d_y, hn::Mul(s.value, hn::MulAdd(x, s.complement, one)));
  } else if constexpr (kKind == Activation::kTanh) {
    return hn::Mul(d_y, hn::NegMulAdd(saved, saved, one));
  } else {
    return d_y;
  }
}

// Calls body(constant) with `activation` as a compile-time constant, so that the choice stays
// outside the loops.
template <typename Body>
HWY_INLINE void with_activation(Activation activation, Body&& body) {
  switch (activation) {
    case Activation::kNone: return body(std::integral_constant<Activation, Activation::kNone>{});
    case Activation::kRelu: return body(std::integral_constant<Activation, Activation::kRelu>{});
    case Activation::kGeluTanh:
      return body(std::integral_constant<Activation, Activation::kGeluTanh>{});
    case Activation::kGeluErf:
      return body(std::integral_constant<Activation, Activation::kGeluErf>{});
    case Activation::kSilu: return body(std::integral_constant<Activation, Activation::kSilu>{});
    case Activation::kTanh: return body(std::integral_constant<Activation, Activation::kTanh>{});
    case Activation::kRelu6: return body(std::integral_constant<Activation, Activation::kRelu6>{});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_SIMD_INL_H
