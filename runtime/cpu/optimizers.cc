#include "runtime/cpu/optimizers.h"

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/grain.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/optimizers.cc"
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

void exchange_kernel(float* HWY_RESTRICT others, float* HWY_RESTRICT parameters, int64_t n) {
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

void update(const SgdConstants& constants, const OptimizerSlice& slice) {
  if (slice.first_moment == nullptr) {
    const auto kernel = HWY_DYNAMIC_DISPATCH(sgd_kernel);
    parallel_for(slice.elements, kGrainElements, [&](int64_t begin, int64_t end) {
      kernel(constants, slice.gradients + begin, slice.parameters + begin, end - begin);
    });
    return;
  }
  const auto kernel = HWY_DYNAMIC_DISPATCH(sgd_momentum_kernel);
  parallel_for(slice.elements, kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(constants,
           slice.gradients + begin,
           slice.parameters + begin,
           slice.first_moment + begin,
           end - begin);
  });
}

void update(const AdamConstants& constants, const OptimizerSlice& slice) {
  LOCKSTEP_CHECK(slice.first_moment != nullptr && slice.second_moment != nullptr);
  const auto kernel = HWY_DYNAMIC_DISPATCH(adam_kernel);
  parallel_for(slice.elements, kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(constants,
           slice.gradients + begin,
           slice.parameters + begin,
           slice.first_moment + begin,
           slice.second_moment + begin,
           end - begin);
  });
}

void update(const LambConstants& constants, const OptimizerSlice& slice) {
  LOCKSTEP_CHECK(slice.first_moment != nullptr && slice.second_moment != nullptr);
  const auto kernel = HWY_DYNAMIC_DISPATCH(lamb_kernel);
  parallel_for(slice.elements, kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(constants,
           slice.parameters + begin,
           slice.gradients + begin,
           slice.first_moment + begin,
           slice.second_moment + begin,
           end - begin);
  });
}

void update(const MovingAverageConstants& constants, const OptimizerSlice& slice) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(moving_average_kernel);
  parallel_for(slice.elements, kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(constants, slice.gradients + begin, slice.parameters + begin, end - begin);
  });
}

void update(const ExchangeConstants&, const OptimizerSlice& slice) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(exchange_kernel);
  parallel_for(slice.elements, kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(slice.gradients + begin, slice.parameters + begin, end - begin);
  });
}

}  // namespace

void optimizer_update(const OptimizerConstants& constants, const OptimizerSlice& slice) {
  std::visit([&](const auto& alternative) { update(alternative, slice); }, constants);
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
