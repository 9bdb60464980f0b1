#include "runtime/graph/ops/dropout.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/dropout.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Elements [begin, end) one at a time.
void dropout_scalar(const float* x,
                    float* y,
                    int64_t begin,
                    int64_t end,
                    uint32_t threshold,
                    float factor,
                    const RngStream& stream) {
  for (int64_t i = begin; i < end; ++i) {
    y[i] = philox_word(stream, i) >= threshold ? x[i] * factor : 0.0f;
  }
}

#if HWY_TARGET != HWY_SCALAR
using U64 = hn::Repartition<uint64_t, F32>;
using Vec64 = hn::Vec<U64>;

constexpr size_t kBlocksAtOnce = kVecLanes / 2;     // Philox blocks in a vector of 64-bit lanes
constexpr size_t kWordsAtOnce = 4 * kBlocksAtOnce;  // random words they give: two vectors
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
// lane. Only the low half of a lane counts; MulEven reads no other, and what the exclusive ors
// leave in the high half is masked away at the end.
HWY_INLINE Words philox_words(const RngStream& stream, const RoundKeys& keys, uint64_t index) {
  const U64 d64;
  const U32 d32;
  // InterleaveLower and -Upper below take the even and the odd lanes of their operands: the even
  // lanes get the first half of the blocks, so that the words come out in order.
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

HWY_INLINE Vec drop(Vec x, hn::Vec<U32> words, uint32_t threshold, float factor) {
  const auto dropped = hn::RebindMask(F32(), hn::Lt(words, hn::Set(U32(), threshold)));
  return hn::IfThenZeroElse(dropped, hn::Mul(x, set(factor)));
}

// `begin` is a multiple of 4, a whole number of Philox blocks.
void dropout_kernel(const float* x,
                    float* y,
                    int64_t begin,
                    int64_t end,
                    uint32_t threshold,
                    float factor,
                    const RngStream& stream) {
  const F32 d;
  const RoundKeys keys(stream.seed);
  int64_t i = begin;
  for (; i + static_cast<int64_t>(kWordsAtOnce) <= end; i += kWordsAtOnce) {
    const Words words = philox_words(stream, keys, i / 4);
    const Vec first = hn::LoadU(d, x + i), second = hn::LoadU(d, x + i + kVecLanes);
    hn::StoreU(drop(first, words.first, threshold, factor), d, y + i);
    hn::StoreU(drop(second, words.second, threshold, factor), d, y + i + kVecLanes);
  }
  dropout_scalar(x, y, i, end, threshold, factor, stream);
}
#else
void dropout_kernel(const float* x,
                    float* y,
                    int64_t begin,
                    int64_t end,
                    uint32_t threshold,
                    float factor,
                    const RngStream& stream) {
  dropout_scalar(x, y, begin, end, threshold, factor, stream);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(dropout_kernel);

namespace {

void run(const OpCall& call) {
  const auto op = Dropout<float>::of(call);
  LOCKSTEP_CHECK(op.probability >= 0 && op.probability < 1, "p = {} ", op.probability);
  const LaneContext& lane = call.lane();
  const RngStream stream{lane.seed, lane.step, lane.lane, op.purpose};
  const auto kernel = HWY_DYNAMIC_DISPATCH(dropout_kernel);
  constexpr int64_t kBlock = 1024;  // ranges of threads begin at whole Philox blocks
  const int64_t blocks = (op.n + kBlock - 1) / kBlock;
  parallel_for(blocks, kGrainElements / kBlock, [&](int64_t first, int64_t last) {
    kernel(op.x,
           op.y,
           first * kBlock,
           std::min(op.n, last * kBlock),
           op.threshold(),
           op.factor(),
           stream);
  });
}

constexpr Implementation kRows[] = {
    {OpKind::kDropout, "simd", run},
    {OpKind::kDropoutBackward, "simd", run},
};

}  // namespace

constinit const Implementations kCpuDropout = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
