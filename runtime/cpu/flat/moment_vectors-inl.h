// decode_moments() and encode_moments() (base/moment_block.h) by vectors, with the same bits. Like
// simd-inl.h, this file is compiled once per instruction set.
//
// The magnitudes of a map are numbered by j. Decade d, from the smallest one on, has those from
// parts = 2^d (signed) or 2^(d + 1) (unsigned) to 2 parts - 1; 0 comes before the first decade, and
// 1 after the last one. So the exponent of j, as a float, is the decade, and its mantissa the place
// in it: j = parts (1 + place).
//
// Decoding computes the two ends of the part of [0.1, 1] as make_moment_map() does. There they are
// computed in double precision and exact until they are rounded, as in a fused multiply-add here.
//
// Encoding finds the decade by comparing with the middle between two decades, and then j by the
// line through its parts. If the result is so near to a whole number that the rounded values of the
// map decide, or not a number, moment_code() computes the code. That is about one number in 2,000.

#if defined(LOCKSTEP_RUNTIME_CPU_FLAT_MOMENT_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_FLAT_MOMENT_VECTORS_INL_H
#undef LOCKSTEP_RUNTIME_CPU_FLAT_MOMENT_VECTORS_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_FLAT_MOMENT_VECTORS_INL_H
#endif

#include <array>
#include <limits>

#include "runtime/base/moment_block.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// A table has an element for 0 and for each decade; vectors of fewer lanes cannot look it up.
constexpr bool kVectorMoments = kVecLanes >= 8;

struct MomentTables {
  using Table = std::array<float, 16>;
  Table half_ten{}, width{};         // of decoding: 10^d / 2, and 1 / parts
  Table above{};                     // the middle above the numbers of 0, or of the decade
  Table slope{}, offset{}, first{};  // j = slope |x| + offset, from `first` on
  float one = 0;                     // the middle below 1
  uint32_t first_exponent = 0, exponent_step = 0;
};

constexpr MomentTables make_moment_tables(bool is_signed) {
  const MomentMap& map = is_signed ? kSignedMoments : kUnsignedMoments;
  MomentTables t;
  double ten = 1e-6;
  for (size_t g = 0; g < 8; ++g) {
    const size_t parts = is_signed ? size_t{1} << g >> 1 : size_t{1} << g;
    const size_t last = is_signed ? 127 + (size_t{1} << g) - 1 : (size_t{2} << g) - 2;
    t.first[g] = static_cast<float>(parts);
    t.above[g] = g < 7 ? map.middles[last] : std::numeric_limits<float>::infinity();
    t.offset[g] = g == 0 ? t.first[g] + 0.5f : static_cast<float>(parts) * (8.0f / 9);
    if (g == 0) continue;
    t.slope[g] = static_cast<float>(static_cast<double>(parts) / (0.9 * ten));
    ten *= 10;
  }
  constexpr float kTens[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  for (size_t d = 0; d < 7; ++d) {
    t.half_ten[d] = kTens[d] / 2;
    t.width[d] = 1 / static_cast<float>((is_signed ? size_t{1} : size_t{2}) << d);
  }
  // The number after the last decade is 1: with bounds of 0.1f, their sum times 5 rounds to it. Or
  // the number before the first decade is 0.
  t.half_ten[7] = is_signed ? 5 : 0;
  t.one = map.middles[254];
  // (exponent and three bits of the mantissa - first) * step / 2^16 is the number of middles below
  // a number, or one less.
  t.first_exponent = is_signed ? 823 : 814;
  t.exponent_step = is_signed ? 2471 : 2442;
  return t;
}

inline constexpr MomentTables kSignedTables = make_moment_tables(true);
inline constexpr MomentTables kUnsignedTables = make_moment_tables(false);

using U8 = hn::Rebind<uint8_t, F32>;
using S32 = hn::RebindToSigned<F32>;

template <bool kSigned>
constexpr const MomentTables& moment_tables() {
  return kSigned ? kSignedTables : kUnsignedTables;
}

HWY_INLINE Vec look_up(const MomentTables::Table& table, hn::Vec<U32> index) {
  return hn::TableLookupLanes(hn::LoadU(F32(), table.data()), hn::IndicesFromVec(F32(), index));
}

template <bool kSigned>
HWY_INLINE void decode_block(const MomentBlock& block, float* to) {
  constexpr uint32_t kFirstDecade = kSigned ? 127 : 128;  // exponent of its j
  constexpr const MomentTables& tables = moment_tables<kSigned>();
  const U32 u32;
  const F32 f32;
  const Vec scale = set(block.scale > 0 ? block.scale : 0.0f), one = set(1);
  for (size_t i = 0; i < kMomentBlock; i += kVecLanes) {
    const auto codes = hn::PromoteTo(S32(), hn::LoadU(U8(), block.codes + i));
    const Vec number = hn::ConvertTo(f32, hn::Add(codes, hn::Set(S32(), kSigned ? -127 : 1)));
    const Vec j = hn::Abs(number);
    const auto bits = hn::BitCast(u32, j);
    const auto decade =
        hn::And(hn::Sub(hn::ShiftRight<23>(bits), hn::Set(u32, kFirstDecade)), hn::Set(u32, 7));
    const auto mantissa = hn::And(bits, hn::Set(u32, 0x7fffff));
    const Vec place = hn::Sub(hn::BitCast(f32, hn::Or(mantissa, hn::Set(u32, 127u << 23))), one);
    // Both bounds are counted from the end of [0.1, 1] that is nearer to the lower one. Bounds in
    // the middle are the same from both ends.
    const auto is_low = hn::Lt(place, set(0.5f));
    const Vec end = hn::IfThenElse(is_low, set(0.1f), one);
    const Vec from_end = hn::Sub(place, hn::IfThenElseZero(hn::Not(is_low), one));
    const Vec share = set(1.0f - 0.1f);
    const Vec low = hn::MulAdd(share, from_end, end);
    const Vec high = hn::MulAdd(share, hn::Add(from_end, look_up(tables.width, decade)), end);
    Vec value = hn::Mul(hn::Add(low, high), look_up(tables.half_ten, decade));
    if constexpr (!kSigned) value = hn::IfThenElse(hn::Ge(j, set(256)), one, value);
    if constexpr (kSigned) value = hn::IfThenElseZero(hn::Ge(j, one), value);
    if constexpr (kSigned) value = hn::CopySignToAbs(value, number);
    hn::StoreU(hn::Mul(value, scale), f32, to + i);
  }
  if (!(block.scale > 0)) std::fill_n(to, kMomentBlock, 0.0f);
}

template <bool kSigned>
HWY_INLINE void encode_block(const float* from, MomentBlock& block) {
  constexpr const MomentTables& tables = moment_tables<kSigned>();
  const U32 u32;
  const F32 f32;
  const Vec zero = set(0), one = set(1);
  Vec largest = zero;
  for (size_t i = 0; i < kMomentBlock; i += kVecLanes) {
    const Vec x = hn::Abs(hn::LoadU(f32, from + i));
    largest = hn::Max(x, largest);  // the second one if x is NaN
  }
  const float scale = hn::GetLane(hn::MaxOfLanes(f32, largest));
  block.scale = scale;
  if (!(scale > 0)) {
    std::fill_n(block.codes, kMomentBlock, (kSigned ? kSignedMoments : kUnsignedMoments).zero);
    return;
  }
  const Vec lowest = set(0x1p-24f);  // below the lowest middle; its maximum with NaN is NaN
  for (size_t i = 0; i < kMomentBlock; i += kVecLanes) {
    const Vec x = hn::Div(hn::LoadU(f32, from + i), set(scale));
    const auto negative = hn::Lt(x, zero);
    // A negative number in the middle between two values becomes the one farther from 0.
    auto bits = hn::BitCast(u32, kSigned ? hn::Abs(x) : x);
    if constexpr (kSigned)
      bits = hn::Sub(bits, hn::VecFromMask(u32, hn::RebindMask(u32, negative)));
    const Vec a = hn::Max(lowest, hn::BitCast(f32, bits));
    // The decade, counted from 1; 0: below all of them.
    const auto exponent =
        hn::Sub(hn::ShiftRight<20>(hn::BitCast(u32, a)), hn::Set(u32, tables.first_exponent));
    const auto guess = hn::ShiftRight<16>(hn::Mul(exponent, hn::Set(u32, tables.exponent_step)));
    const auto is_above = hn::RebindMask(u32, hn::Gt(a, look_up(tables.above, guess)));
    const auto decade = hn::Sub(guess, hn::VecFromMask(u32, is_above));
    const Vec line = hn::MulAdd(a, look_up(tables.slope, decade), look_up(tables.offset, decade));
    const Vec first = look_up(tables.first, decade);
    Vec j = hn::Floor(line);
    const Vec from_half = hn::Sub(hn::Sub(line, j), set(0.5f));
    const auto is_sure = hn::Lt(hn::Abs(from_half), set(0.5f - 0x1p-12f));
    j = hn::Max(hn::Min(j, hn::MulSub(first, set(2), one)), first);
    j = hn::Add(j, hn::IfThenElseZero(hn::Gt(x, set(tables.one)), one));
    if constexpr (kSigned) {
      j = hn::Max(j, hn::IfThenElseZero(negative, one));
      j = hn::CopySignToAbs(j, x);
    }
    // Adding 1.5 * 2^23 moves the unit of j to the last bit of the float.
    const Vec shifted = hn::Add(j, set(0x1.8p23f + (kSigned ? 127 : -1)));
    hn::StoreU(hn::TruncateTo(U8(), hn::BitCast(u32, shifted)), U8(), block.codes + i);
    if (HWY_UNLIKELY(!hn::AllTrue(f32, is_sure))) {
      HWY_ALIGN float numbers[kVecLanes];
      uint8_t sure[8];
      hn::Store(x, f32, numbers);
      hn::StoreMaskBits(f32, is_sure, sure);
      for (size_t k = 0; k < kVecLanes; ++k) {
        const unsigned group = sure[k / 8];
        if ((group >> (k % 8) & 1u) == 0)
          block.codes[i + k] = moment_code(kSigned ? kSignedMoments : kUnsignedMoments, numbers[k]);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif
