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
#include "runtime/cpu/philox-inl.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
HWY_INLINE Vec drop(Vec x, hn::Vec<U32> words, uint32_t threshold, float factor) {
  const auto dropped = hn::RebindMask(F32(), hn::Lt(words, hn::Set(U32(), threshold)));
  return hn::IfThenZeroElse(dropped, hn::Mul(x, set(factor)));
}
#endif

// Elements [begin, end). `begin` is a multiple of 4, so that it begins a Philox block.
void dropout_kernel(const graph::Dropout<float>& op, int64_t begin, int64_t end) {
  const graph::LaneContext& lane = op.call.lane();
  const RngStream stream{lane.seed, lane.step, lane.lane, op.purpose};
  const uint32_t threshold = op.threshold();
  const float factor = op.factor();
  int64_t i = begin;
#if HWY_TARGET != HWY_SCALAR
  const F32 d;
  const RoundKeys keys(stream.seed);
  for (; i + static_cast<int64_t>(kWordsAtOnce) <= end; i += kWordsAtOnce) {
    const Words words = philox_words(stream, keys, i / 4);
    const Vec first = hn::LoadU(d, op.x + i), second = hn::LoadU(d, op.x + i + kVecLanes);
    hn::StoreU(drop(first, words.first, threshold, factor), d, op.y + i);
    hn::StoreU(drop(second, words.second, threshold, factor), d, op.y + i + kVecLanes);
  }
#endif
  for (; i < end; ++i) op.y[i] = philox_word(stream, i) >= threshold ? op.x[i] * factor : 0.0f;
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(dropout_kernel);

namespace {

void run(const graph::Dropout<float>& op) {
  LOCKSTEP_CHECK(op.probability >= 0 && op.probability < 1, "p = {} ", op.probability);
  const auto kernel = HWY_DYNAMIC_DISPATCH(dropout_kernel);
  constexpr int64_t kBlock = 1024;  // each thread's range begins at a Philox block
  const int64_t blocks = (op.n + kBlock - 1) / kBlock;
  parallel_for(blocks, kGrainElements / kBlock, [&](int64_t first, int64_t last) {
    kernel(op, first * kBlock, std::min(op.n, last * kBlock));
  });
}

constexpr exec::Implementation kRows[] = {
    row<run>(graph::OpKind::kDropout, "simd"),
    row<run>(graph::OpKind::kDropoutBackward, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuDropout = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
