// Random words of rng.h, as many at once as a vector holds. Compiled once per instruction set: see
// simd-inl.h.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_PHILOX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_PHILOX_INL_H
#undef LOCKSTEP_RUNTIME_CPU_PHILOX_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_PHILOX_INL_H
#endif

#include <cstdint>

#include "runtime/base/rng.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
using U64 = hn::Repartition<uint64_t, F32>;
using Vec64 = hn::Vec<U64>;

constexpr size_t kBlocksAtOnce = kVecLanes / 2;     // Philox blocks in a vector of 64-bit lanes
constexpr size_t kWordsAtOnce = 4 * kBlocksAtOnce;  // random words that they yield: two vectors
static_assert(kWordsAtOnce == 2 * kVecLanes);

// The ten round keys, broadcast once for all blocks.
struct RoundKeys {
  explicit HWY_INLINE RoundKeys(uint64_t seed) {
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      first[round] = hn::Set(U64(), k0);
      second[round] = hn::Set(U64(), k1);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
  }
  Vec64 first[10], second[10];
};

struct Words {
  hn::Vec<U32> first, second;  // words of kVecLanes consecutive elements each
};

// The words of the blocks index, index + 1, ...: philox() of rng.h with one block in each 64-bit
// lane. Only the low half of a lane is significant: MulEven reads no other, and the garbage that
// the exclusive ors leave in the high half is masked at the end.
HWY_INLINE Words philox_words(const RngStream& stream, const RoundKeys& keys, uint64_t index) {
  const U64 d64;
  const U32 d32;
  // InterleaveLower and InterleaveUpper below take the even and the odd lanes of their operands.
  // The even lanes get the first half of the blocks, so that the words come out in order.
  alignas(64) uint64_t offsets[kBlocksAtOnce];
  for (size_t k = 0; k < kBlocksAtOnce; ++k) offsets[k] = k / 2 + (k % 2) * (kBlocksAtOnce / 2);
  const Vec64 blocks = hn::Add(hn::Set(d64, index), hn::Load(d64, offsets));

  Vec64 c0 = blocks;
  Vec64 c1 = hn::Xor(hn::ShiftRight<32>(blocks), hn::Set(d64, stream.purpose));
  Vec64 c2 = hn::Set(d64, stream.step);
  Vec64 c3 = hn::Set(d64, stream.lane);
  const auto m0 = hn::Set(d32, 0xD2511F53u), m1 = hn::Set(d32, 0xCD9E8D57u);
  for (int round = 0; round < 10; ++round) {
    const Vec64 p0 = hn::MulEven(hn::BitCast(d32, c0), m0);
    const Vec64 p1 = hn::MulEven(hn::BitCast(d32, c2), m1);
    c0 = hn::Xor(hn::ShiftRight<32>(p1), hn::Xor(c1, keys.first[round]));
    c1 = p1;
    c2 = hn::Xor(hn::ShiftRight<32>(p0), hn::Xor(c3, keys.second[round]));
    c3 = p0;
  }
  const Vec64 low = hn::Set(d64, 0xFFFFFFFFu);
  const Vec64 c01 = hn::Or(hn::And(c0, low), hn::ShiftLeft<32>(c1));
  const Vec64 c23 = hn::Or(hn::And(c2, low), hn::ShiftLeft<32>(c3));
  return {hn::BitCast(d32, hn::InterleaveLower(d64, c01, c23)),
          hn::BitCast(d32, hn::InterleaveUpper(d64, c01, c23))};
}
#else
struct RoundKeys {
  explicit RoundKeys(uint64_t /*seed*/) {}
};
#endif

// Writes the factors of `count` elements, 0 if dropped, whose words of the stream begin at index
// `first`, a multiple of 4. `to` needs room for count rounded up to a multiple of two vectors.
HWY_INLINE void dropout_factors(const RngStream& stream,
                                [[maybe_unused]] const RoundKeys& keys,
                                uint64_t first,
                                int64_t count,
                                uint32_t threshold,
                                float factor,
                                float* to) {
#if HWY_TARGET != HWY_SCALAR
  const F32 d;
  const auto factors = [&](hn::Vec<U32> words) HWY_ATTR {
    const auto dropped = hn::RebindMask(d, hn::Lt(words, hn::Set(U32(), threshold)));
    return hn::IfThenZeroElse(dropped, set(factor));
  };
  for (int64_t i = 0; i < count; i += kWordsAtOnce) {
    const Words words = philox_words(stream, keys, (first + i) / 4);
    hn::Store(factors(words.first), d, to + i);
    hn::Store(factors(words.second), d, to + i + kVecLanes);
  }
#else
  for (int64_t i = 0; i < count; ++i)
    to[i] = philox_word(stream, first + i) >= threshold ? factor : 0.0f;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_PHILOX_INL_H
