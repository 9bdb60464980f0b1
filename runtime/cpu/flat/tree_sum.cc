#include "runtime/cpu/flat/tree_sum.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/flat/tree_sum.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

using half::AsBF16;
using half::Bits;
using half::bits;
using half::bits_of;
using half::float_of;
using half::less;
using half::magnitude;
using half::shorten;

HWY_INLINE Bits sign(Vec v) { return hn::And(bits_of(v), bits(0x80000000)); }

// The wire types besides bfloat16.
struct Unrounded {
  static HWY_INLINE Vec round(Vec v) { return v; }
};

struct AsF16 {
  static constexpr uint32_t kMinNormal = 0x38800000;  // 2^-14
  static constexpr uint32_t kOverflow = 0x47800000;   // 65536
  static constexpr uint32_t kInfinity = 0x7f800000;
  static constexpr uint32_t kRebias = 0x38000000;  // difference of the exponents' biases

  static HWY_INLINE Vec round(Vec v) {
    const Bits size = magnitude(v);
    const Bits normal = shorten<13>(size);
    // Subnormals are multiples of 2^-24, as are floats from 0.5 on.
    const Bits subnormal = bits_of(hn::Sub(hn::Add(float_of(size), set(0.5f)), set(0.5f)));
    Bits rounded = hn::IfThenElse(less(size, kMinNormal), subnormal, normal);
    rounded = hn::IfThenElse(less(rounded, kOverflow), rounded, bits(kInfinity));
    rounded = hn::Or(rounded, sign(v));
    return float_of(hn::IfThenElse(less(size, kInfinity + 1), rounded, bits(0x7fffe000)));
  }
  static HWY_INLINE Bits pack(Vec v) {
    const Bits size = magnitude(v);
    const Bits normal = hn::ShiftRight<13>(hn::Sub(size, bits(kRebias)));
    const Bits subnormal =
        hn::BitCast(U32(), hn::ConvertTo(half::I32(), hn::Mul(float_of(size), set(0x1p24f))));
    // Infinity and NaN keep the upper bits of their mantissa.
    const Bits special = hn::And(hn::ShiftRight<13>(size), bits(0x7fff));
    Bits packed = hn::IfThenElse(less(size, kMinNormal), subnormal, normal);
    packed = hn::IfThenElse(less(size, kOverflow), packed, hn::Or(special, bits(0x7c00)));
    return hn::Or(packed, hn::ShiftRight<16>(sign(v)));
  }
  static HWY_INLINE Vec unpack(Bits packed) {
    const Bits size = hn::And(packed, bits(0x7fff));
    const Bits shifted = hn::ShiftLeft<13>(size);
    const Bits subnormal =
        bits_of(hn::Mul(hn::ConvertTo(F32(), hn::BitCast(half::I32(), size)), set(0x1p-24f)));
    Bits value = hn::Add(shifted, bits(kRebias));
    value = hn::IfThenElse(less(size, 0x0400), subnormal, value);
    value = hn::IfThenElse(less(size, 0x7c00), value, hn::Or(shifted, bits(kInfinity)));
    return float_of(hn::Or(value, hn::ShiftLeft<16>(hn::And(packed, bits(0x8000)))));
  }
};

HWY_INLINE Bits load_16(const uint16_t* from, FullVector) { return half::load(from); }
HWY_INLINE Bits load_16(const uint16_t* from, PartialVector part) {
  return half::load(from, part.count);
}
HWY_INLINE void store_16(Bits packed, uint16_t* to, FullVector) { half::store(packed, to); }
HWY_INLINE void store_16(Bits packed, uint16_t* to, PartialVector part) {
  half::store(packed, to, part.count);
}

// The terms of a tree, read at element i.
template <typename Wire, bool kTravelled>
struct Terms {
  const void* const* arrays;

  template <typename Access>
  HWY_INLINE Vec read(int number, size_t i, Access access) const {
    if constexpr (kTravelled) {
      return Wire::unpack(load_16(static_cast<const uint16_t*>(arrays[number]) + i, access));
    } else {
      return access.load(static_cast<const float*>(arrays[number]) + i);
    }
  }
};

// Adds two sums of `half` terms each. Both are rounded to the wire type first, except terms that
// have been rounded for their transfer.
template <typename Wire, bool kTravelled>
struct RoundedJoin {
  // A sum of one term.
  template <typename Access>
  HWY_INLINE Vec alone(Vec term, size_t, Access) const {
    return term;
  }
  template <typename Access>
  HWY_INLINE Vec operator()(Vec left, Vec right, int, int half, size_t, Access) const {
    if (kTravelled && half == 1) return hn::Add(left, right);
    return hn::Add(Wire::round(left), Wire::round(right));
  }
};

// Error feedback: the rounding errors of join number `join` are kept as residuals and added the
// next time.
struct ErrorFeedbackJoin {
  collectives::ErrorFeedbackResiduals residuals;

  template <typename Access>
  HWY_INLINE Vec round(Vec sum, int join, size_t i, Access access) const {
    uint16_t* const kept = residuals.of(join) + i;
    const Vec corrected = hn::Add(sum, AsBF16::unpack(load_16(kept, access)));
    const Vec rounded = AsBF16::round(corrected);
    const Vec rest = AsBF16::round(hn::Sub(corrected, rounded));
    const auto finite = less(magnitude(rest), 0x7f800000);
    store_16(AsBF16::pack(float_of(hn::IfThenElseZero(finite, bits_of(rest)))), kept, access);
    return rounded;
  }
  template <typename Access>
  HWY_INLINE Vec alone(Vec term, size_t i, Access access) const {
    return round(term, 1, i, access);
  }
  template <typename Access>
  HWY_INLINE Vec operator()(Vec left, Vec right, int join, int, size_t i, Access access) const {
    return round(hn::Add(left, right), join, i, access);
  }
};

// The sum of the terms from `first` on. Trees of up to `kUnrolled` terms are unrolled; larger ones
// recurse on their halves.
template <int kCount, typename Terms, typename Join, typename Access>
HWY_INLINE Vec sum_of(const Terms& terms, const Join& join, int first, size_t i, Access access) {
  if constexpr (kCount == 1) {
    return terms.read(first, i, access);
  } else {
    constexpr int kHalf = kCount / 2;
    const int middle = first + kHalf;
    const Vec left = sum_of<kHalf>(terms, join, first, i, access);
    return join(left, sum_of<kHalf>(terms, join, middle, i, access), middle, kHalf, i, access);
  }
}
template <int kUnrolled, typename Terms, typename Join, typename Access>
Vec deep_sum(const Terms& terms, const Join& join, int first, int count, size_t i, Access access) {
  if (count == kUnrolled) return sum_of<kUnrolled>(terms, join, first, i, access);
  const int half = count / 2, middle = first + half;
  const Vec left = deep_sum<kUnrolled>(terms, join, first, half, i, access);
  const Vec right = deep_sum<kUnrolled>(terms, join, middle, half, i, access);
  return join(left, right, middle, half, i, access);
}

// The sum of terms that join in any tree: the last sum is in a register, those before it in memory.
template <typename Terms, typename Join, typename Access>
HWY_INLINE Vec joined_sum(const Terms& terms,
                          const Join& join,
                          const collectives::TreeSumTerms& tree,
                          size_t i,
                          Access access) {
  struct Open {
    HWY_ALIGN float values[kVecLanes];
    int first, count;  // terms
  };
  Open open[collectives::kMaxOpenSums];
  Open* before = open;  // behind the sums that wait for the last one
  Vec last = terms.read(0, i, access);
  int first = 0, count = 1;
  for (int k = 1; k < tree.count; ++k) {
    hn::Store(last, F32(), before->values);
    before->first = first;
    before->count = count;
    ++before;
    last = terms.read(k, i, access);
    first = k;
    count = 1;
    for (int joins = tree.joins[k]; joins > 0; --joins) {
      --before;
      const int half = before->count == 1 && count == 1 ? 1 : 2;
      last = join(hn::Load(F32(), before->values), last, first, half, i, access);
      first = before->first;
      count += before->count;
    }
  }
  return last;
}

// `stream`: write past the caches, for which `out` must be aligned. A sum that is not read soon
// then evicts nothing, and its lines need not be read first.
template <typename Wire, bool kTravelled, typename Sum>
HWY_INLINE void write_sums(const collectives::TreeSumTerms& terms,
                           float* out,
                           int64_t begin,
                           int64_t end,
                           bool stream,
                           const Sum& sum_at) {
  const auto first = static_cast<size_t>(begin);
  const Terms<Wire, kTravelled> from = {terms.arrays};
  const int copies = terms.copy_count;
  // With two ranks, the only copy's pointer stays in a register: the loop runs at memory speed.
  float* const copy = copies > 0 ? terms.copies[0] : nullptr;
  for_each_vector(static_cast<size_t>(end - begin), [&](size_t i, auto access) HWY_ATTR {
    Vec sum = sum_at(from, first + i, access);
    if (terms.round_sum) sum = Wire::round(sum);
    if (std::is_same_v<decltype(access), FullVector> && stream) {
      hn::Stream(sum, F32(), out + first + i);
    } else {
      access.store(sum, out + first + i);
    }
    if (copy != nullptr) access.store(sum, copy + first + i);
    for (int c = 1; c < copies; ++c) access.store(sum, terms.copies[c] + first + i);
  });
  if (stream) hwy::FlushStream();
}

// Plain sums run at memory speed, so up to eight terms have an unrolled loop. If every sum is
// rounded, only two terms have one, and subtrees of four are unrolled.
template <typename Wire, bool kTravelled, typename Join>
void sum_with(const Join& join,
              const collectives::TreeSumTerms& terms,
              float* out,
              int64_t begin,
              int64_t end,
              bool stream) {
  constexpr bool kPlain = std::is_same_v<Wire, Unrounded>;
  const auto write = [&](const auto& sum_at) HWY_ATTR {
    write_sums<Wire, kTravelled>(terms, out, begin, end, stream, sum_at);
  };
  const auto write_unrolled = [&](auto count) HWY_ATTR {
    write([&](const auto& from, size_t i, auto access)
              HWY_ATTR { return sum_of<count()>(from, join, 0, i, access); });
  };
  const int chained = collectives::chained_terms(terms);
  if (chained > 0 && terms.count == chained + 2) {
    return write([&](const auto& from, size_t i, auto access) HWY_ATTR {
      Vec sum = sum_of<2>(from, join, chained, i, access);
      for (int k = chained; k > 0; --k)
        sum = join(from.read(k - 1, i, access), sum, k, 2, i, access);
      return sum;
    });
  }
  if (terms.joins != nullptr) {
    return write([&](const auto& from, size_t i, auto access)
                     HWY_ATTR { return joined_sum(from, join, terms, i, access); });
  }
  if (terms.count == 1) {
    return write([&](const auto& from, size_t i, auto access)
                     HWY_ATTR { return join.alone(from.read(0, i, access), i, access); });
  }
  if (terms.count == 2) return write_unrolled(std::integral_constant<int, 2>());
  if constexpr (kPlain) {
    if (terms.count == 4) return write_unrolled(std::integral_constant<int, 4>());
    if (terms.count == 8) return write_unrolled(std::integral_constant<int, 8>());
  }
  write([&](const auto& from, size_t i, auto access) HWY_ATTR {
    return deep_sum < kPlain ? 8 : 4 > (from, join, 0, terms.count, i, access);
  });
}

template <typename Wire, bool kTravelled>
void sum_typed(
    const collectives::TreeSumTerms& terms, float* out, int64_t begin, int64_t end, bool stream) {
  sum_with<Wire, kTravelled>(RoundedJoin<Wire, kTravelled>(), terms, out, begin, end, stream);
}

template <bool kTravelled>
void sum_with_feedback(const collectives::TreeSumTerms& terms,
                       float* out,
                       int64_t begin,
                       int64_t end) {
  const ErrorFeedbackJoin join = {terms.residuals};
  sum_with<AsBF16, kTravelled>(join, terms, out, begin, end, /*stream=*/false);
}

void tree_sum_kernel(
    const collectives::TreeSumTerms& terms, float* out, int64_t begin, int64_t end, bool stream) {
  const bool travelled = terms.travelled;
  if (terms.residuals)
    return travelled ? sum_with_feedback<true>(terms, out, begin, end)
                     : sum_with_feedback<false>(terms, out, begin, end);
  switch (terms.wire) {
    case DType::kBF16:
      return travelled ? sum_typed<AsBF16, true>(terms, out, begin, end, stream)
                       : sum_typed<AsBF16, false>(terms, out, begin, end, stream);
    case DType::kF16:
      return travelled ? sum_typed<AsF16, true>(terms, out, begin, end, stream)
                       : sum_typed<AsF16, false>(terms, out, begin, end, stream);
    default: return sum_typed<Unrounded, false>(terms, out, begin, end, stream);
  }
}

template <typename Wire>
void pack_typed(const float* from, uint16_t* to, int64_t n) {
  for_each_vector(static_cast<size_t>(n), [&](size_t i, auto access) HWY_ATTR {
    store_16(Wire::pack(Wire::round(access.load(from + i))), to + i, access);
  });
}

void pack_kernel(const float* from, DType wire, uint16_t* to, int64_t n) {
  if (wire == DType::kBF16) return pack_typed<AsBF16>(from, to, n);
  pack_typed<AsF16>(from, to, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(tree_sum_kernel);
HWY_EXPORT(pack_kernel);

namespace {
// Sums of so many floats would fill most of the caches.
constexpr int64_t kStreamElements = int64_t{1} << 20;
constexpr uintptr_t kStreamAlignment = 64;  // bytes of the widest vectors
}  // namespace

void tree_sum(const collectives::TreeSumTerms& terms, float* out, int64_t n) {
  const int count = terms.count;
  LOCKSTEP_CHECK(
      count > 0 && (terms.joins != nullptr || (count & (count - 1)) == 0), "count = {}", count);
  LOCKSTEP_CHECK(terms.wire != DType::kF32 || !terms.travelled);
  LOCKSTEP_CHECK(terms.wire == DType::kBF16 || !terms.residuals);
  const auto kernel = HWY_DYNAMIC_DISPATCH(tree_sum_kernel);
  const bool elsewhere = std::find(terms.arrays, terms.arrays + count, out) == terms.arrays + count;
  const bool large = elsewhere && terms.copy_count == 0 && n >= kStreamElements;
  parallel_for(n, kGrainElements, [&](int64_t begin, int64_t end) {
    const bool aligned = reinterpret_cast<uintptr_t>(out + begin) % kStreamAlignment == 0;
    kernel(terms, out, begin, end, large && aligned);
  });
}

void pack(const float* from, DType wire, std::byte* to, int64_t n) {
  LOCKSTEP_CHECK(wire == DType::kBF16 || wire == DType::kF16);
  const auto kernel = HWY_DYNAMIC_DISPATCH(pack_kernel);
  parallel_for(n, kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(from + begin, wire, reinterpret_cast<uint16_t*>(to) + begin, end - begin);
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
