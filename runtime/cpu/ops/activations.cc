#include "runtime/cpu/ops/activations.h"

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/activations.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

void activation_forward_kernel(Activation activation, const float* x, float* y, int64_t n) {
  with_activation(activation, [&](auto kind) HWY_ATTR {
    for_each_vector(n, [&](size_t i, auto access) HWY_ATTR {
      access.store(activate<kind>(access.load(x + i)), y + i);
    });
  });
}

void activation_backward_kernel(
    Activation activation, const float* d_y, const float* saved, float* d_x, int64_t n) {
  with_activation(activation, [&](auto kind) HWY_ATTR {
    for_each_vector(n, [&](size_t i, auto access) HWY_ATTR {
      access.store(activation_backward<kind>(access.load(d_y + i), access.load(saved + i)),
                   d_x + i);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(activation_forward_kernel);
HWY_EXPORT(activation_backward_kernel);

void activation_forward(Activation activation, const float* x, float* y, int64_t n) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(activation_forward_kernel);
  parallel_for(n, kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(activation, x + begin, y + begin, end - begin);
  });
}

void activation_backward(
    Activation activation, const float* d_y, const float* saved, float* d_x, int64_t n) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(activation_backward_kernel);
  parallel_for(n, kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(activation, d_y + begin, saved + begin, d_x + begin, end - begin);
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
