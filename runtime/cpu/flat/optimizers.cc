#include "runtime/cpu/flat/optimizers.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/flat/optimizers.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// Plain loops around the updates of one element, which the compiler turns into vectors of each
// instruction set: so the arithmetic exists once, and the vector code cannot differ from it. The
// loops are bound by memory.
HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

template <typename Update>
void update_by(const Update& update,
               float* HWY_RESTRICT gradients,
               float* HWY_RESTRICT parameters,
               float* HWY_RESTRICT first_moments,
               float* HWY_RESTRICT second_moments,
               int64_t n) {
  const Update u = update;
  if constexpr (kTakesTwoMoments<Update>) {
    for (int64_t i = 0; i < n; ++i)
      u(gradients[i], parameters[i], first_moments[i], second_moments[i]);
    return;
  }
  if constexpr (kTakesOneMoment<Update>) {
    if (first_moments != nullptr) {
      for (int64_t i = 0; i < n; ++i) u(gradients[i], parameters[i], first_moments[i]);
      return;
    }
  }
  if constexpr (kTakesNoMoment<Update>) {
    for (int64_t i = 0; i < n; ++i) u(gradients[i], parameters[i]);
  }
}

// Elements [begin, begin + n) of the slice.
void update_kernel(const OptimizerUpdate& update,
                   const OptimizerSlice& s,
                   int64_t begin,
                   int64_t n) {
  float* const first = s.first_moment == nullptr ? nullptr : s.first_moment + begin;
  float* const second = s.second_moment == nullptr ? nullptr : s.second_moment + begin;
#define LOCKSTEP_RUN(Config, Update)                     \
  if (const auto* chosen = std::get_if<Update>(&update)) \
    return update_by(*chosen, s.gradients + begin, s.parameters + begin, first, second, n);
  LOCKSTEP_OPTIMIZERS(LOCKSTEP_RUN)
  LOCKSTEP_RUN(, LambDirection)
  LOCKSTEP_RUN(, MovingAverage)
  LOCKSTEP_RUN(, Exchange)
#undef LOCKSTEP_RUN
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(update_kernel);

namespace {

// Takes the cache lines of n floats for writing.
void prefetch_for_writing(const float* from, int64_t n) {
  constexpr int64_t kLine = 16;  // floats
  for (int64_t i = 0; i < n; i += kLine) __builtin_prefetch(from + i, 1, 3);
}

// Whether the slice has the moments that the update needs.
template <typename Update>
bool has_moments(const Update&, const OptimizerSlice& slice) {
  if (kTakesTwoMoments<Update>)
    return slice.first_moment != nullptr && slice.second_moment != nullptr;
  return kTakesNoMoment<Update> || slice.first_moment != nullptr;
}

}  // namespace

// One array is written that may be memory that other ranks of the node have read, as they read
// parameters that they share. A store to a line that is in another core's cache takes a trip there,
// and stores wait for each other; so every block but the first is taken for writing under the block
// before it, many trips at a time.
void optimizer_update(const OptimizerUpdate& update, const OptimizerSlice& slice) {
  constexpr int64_t kBlock = 256;  // floats: as many lines as a core can wait for at a time
  const float* const written = std::visit(
      [&](const auto& chosen) {
        using Update = std::decay_t<decltype(chosen)>;
        LOCKSTEP_CHECK(has_moments(chosen, slice));
        return kWritesParameter<Update> ? slice.parameters : slice.gradients;
      },
      update);
  const auto kernel = HWY_DYNAMIC_DISPATCH(update_kernel);
  parallel_for(slice.elements, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += kBlock) {
      const int64_t next = std::min(block + kBlock, end);
      prefetch_for_writing(written + next, std::min(kBlock, end - next));
      kernel(update, slice, block, next - block);
    }
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
