#include "runtime/cpu/flat/optimizers.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/flat/optimizers.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// Plain loops around the scalar functions, which the compiler turns into vectors of each
// instruction set: so the arithmetic exists once, and the vector code cannot differ from it. The
// loops are bound by memory.
HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

void sgd_kernel(const SgdConstants& constants,
                const float* HWY_RESTRICT gradients,
                float* HWY_RESTRICT parameters,
                int64_t n) {
  const SgdConstants c = constants;
  for (int64_t i = 0; i < n; ++i) sgd_update(c, gradients[i], parameters[i]);
}

void sgd_momentum_kernel(const SgdConstants& constants,
                         const float* HWY_RESTRICT gradients,
                         float* HWY_RESTRICT parameters,
                         float* HWY_RESTRICT moments,
                         int64_t n) {
  const SgdConstants c = constants;
  for (int64_t i = 0; i < n; ++i) sgd_momentum_update(c, gradients[i], parameters[i], moments[i]);
}

void adam_kernel(const AdamConstants& constants,
                 const float* HWY_RESTRICT gradients,
                 float* HWY_RESTRICT parameters,
                 float* HWY_RESTRICT first_moments,
                 float* HWY_RESTRICT second_moments,
                 int64_t n) {
  const AdamConstants c = constants;
  for (int64_t i = 0; i < n; ++i)
    adam_update(c, gradients[i], parameters[i], first_moments[i], second_moments[i]);
}

void moving_average_kernel(const MovingAverageConstants& constants,
                           const float* HWY_RESTRICT sums,
                           float* HWY_RESTRICT parameters,
                           int64_t n) {
  const MovingAverageConstants c = constants;
  for (int64_t i = 0; i < n; ++i) moving_average_update(c, sums[i], parameters[i]);
}

void lamb_kernel(const LambConstants& constants,
                 const float* HWY_RESTRICT parameters,
                 float* HWY_RESTRICT gradients,
                 float* HWY_RESTRICT first_moments,
                 float* HWY_RESTRICT second_moments,
                 int64_t n) {
  const LambConstants c = constants;
  for (int64_t i = 0; i < n; ++i)
    lamb_direction(c, parameters[i], gradients[i], first_moments[i], second_moments[i]);
}

void exchange_kernel(const ExchangeConstants&,
                     float* HWY_RESTRICT others,
                     float* HWY_RESTRICT parameters,
                     int64_t n) {
  for (int64_t i = 0; i < n; ++i) exchange_update(others[i], parameters[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(sgd_kernel);
HWY_EXPORT(sgd_momentum_kernel);
HWY_EXPORT(adam_kernel);
HWY_EXPORT(moving_average_kernel);
HWY_EXPORT(lamb_kernel);
HWY_EXPORT(exchange_kernel);

namespace {

// Takes the cache lines of n floats for writing.
void prefetch_for_writing(const float* from, int64_t n) {
  constexpr int64_t kLine = 16;  // floats
  for (int64_t i = 0; i < n; i += kLine) __builtin_prefetch(from + i, 1, 3);
}

// Calls the kernel for parts of the slice, whose arrays these are. `written` is the one of them
// that is written and may be memory that other ranks of the node have read, as they read parameters
// that they share. A store to a line that is in another core's cache takes a trip there, and stores
// wait for each other; so every block but the first is taken for writing under the block before it,
// many trips at a time.
template <typename Kernel, typename Constants, typename... Arrays>
void run(Kernel kernel,
         const Constants& constants,
         int64_t elements,
         const float* written,
         Arrays*... arrays) {
  constexpr int64_t kBlock = 256;  // floats: as many lines as a core can wait for at a time
  parallel_for(elements, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += kBlock) {
      const int64_t next = std::min(block + kBlock, end);
      prefetch_for_writing(written + next, std::min(kBlock, end - next));
      kernel(constants, arrays + block..., next - block);
    }
  });
}

void update(const SgdConstants& constants, const OptimizerSlice& s) {
  if (s.first_moment == nullptr) {
    run(HWY_DYNAMIC_DISPATCH(sgd_kernel),
        constants,
        s.elements,
        s.parameters,
        s.gradients,
        s.parameters);
  } else {
    run(HWY_DYNAMIC_DISPATCH(sgd_momentum_kernel),
        constants,
        s.elements,
        s.parameters,
        s.gradients,
        s.parameters,
        s.first_moment);
  }
}

void update(const AdamConstants& constants, const OptimizerSlice& s) {
  LOCKSTEP_CHECK(s.first_moment != nullptr && s.second_moment != nullptr);
  run(HWY_DYNAMIC_DISPATCH(adam_kernel),
      constants,
      s.elements,
      s.parameters,
      s.gradients,
      s.parameters,
      s.first_moment,
      s.second_moment);
}

void update(const LambConstants& constants, const OptimizerSlice& s) {
  LOCKSTEP_CHECK(s.first_moment != nullptr && s.second_moment != nullptr);
  run(HWY_DYNAMIC_DISPATCH(lamb_kernel),
      constants,
      s.elements,
      s.gradients,
      s.parameters,
      s.gradients,
      s.first_moment,
      s.second_moment);
}

void update(const MovingAverageConstants& constants, const OptimizerSlice& s) {
  run(HWY_DYNAMIC_DISPATCH(moving_average_kernel),
      constants,
      s.elements,
      s.parameters,
      s.gradients,
      s.parameters);
}

void update(const ExchangeConstants& constants, const OptimizerSlice& s) {
  run(HWY_DYNAMIC_DISPATCH(exchange_kernel),
      constants,
      s.elements,
      s.parameters,
      s.gradients,
      s.parameters);
}

}  // namespace

void optimizer_update(const OptimizerConstants& constants, const OptimizerSlice& slice) {
  std::visit([&](const auto& alternative) { update(alternative, slice); }, constants);
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
