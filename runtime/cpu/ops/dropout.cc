#include "runtime/graph/ops/dropout.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/stored.h"

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
template <typename T>
void drop_elements(const graph::Dropout<T>& op, int64_t begin, int64_t end) {
  const graph::LaneContext& lane = op.call.lane();
  const RngStream stream{lane.seed, lane.step, lane.lane, op.purpose};
  const uint32_t threshold = op.threshold();
  const float factor = op.factor();
  int64_t i = begin;
#if HWY_TARGET != HWY_SCALAR
  const FullVector access;
  const RoundKeys keys(stream.seed);
  for (; i + static_cast<int64_t>(kWordsAtOnce) <= end; i += kWordsAtOnce) {
    const Words words = philox_words(stream, keys, i / 4);
    const Vec first = access.load(op.x + i), second = access.load(op.x + i + kVecLanes);
    access.store(drop(first, words.first, threshold, factor), op.y + i);
    access.store(drop(second, words.second, threshold, factor), op.y + i + kVecLanes);
  }
#endif
  for (; i < end; ++i) {
    const bool kept = philox_word(stream, i) >= threshold;
    op.y[i] = round_to<T>(kept ? to_float(op.x[i]) * factor : 0.0f);
  }
}

void dropout_kernel(AnyStored<graph::Dropout> stored, int64_t begin, int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR { drop_elements(op, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(dropout_kernel);

namespace {

template <typename T>
void run(const graph::Dropout<T>& op) {
  LOCKSTEP_CHECK(op.probability >= 0 && op.probability < 1, "p = {} ", op.probability);
  const auto kernel = HWY_DYNAMIC_DISPATCH(dropout_kernel);
  constexpr int64_t kBlock = 1024;  // each thread's range begins at a Philox block
  const int64_t blocks = (op.n + kBlock - 1) / kBlock;
  parallel_for(blocks, kGrainElements / kBlock, [&](int64_t first, int64_t last) {
    kernel(op, first * kBlock, std::min(op.n, last * kBlock));
  });
}

constexpr exec::Implementation kRows[] = {
    native_row<run<float>, run<BFloat16>>(graph::OpKind::kDropout, "simd"),
    native_row<run<float>, run<BFloat16>>(graph::OpKind::kDropoutBackward, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuDropout = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
