#include "runtime/cpu/ops/activation.h"

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/activation.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

void activation_forward_kernel(const graph::ActivationForward<float>& op,
                               int64_t begin,
                               int64_t end) {
  const float* x = op.x + begin;
  float* y = op.y + begin;
  with_activation(op.activation, [&](auto kind) HWY_ATTR {
    for_each_vector(end - begin, [&](size_t i, auto access) HWY_ATTR {
      access.store(activate<kind>(access.load(x + i)), y + i);
    });
  });
}

void activation_backward_kernel(const graph::ActivationBackward<float>& op,
                                int64_t begin,
                                int64_t end) {
  const float *d_y = op.d_y + begin, *saved = op.saved + begin;
  float* d_x = op.d_x + begin;
  with_activation(op.activation, [&](auto kind) HWY_ATTR {
    for_each_vector(end - begin, [&](size_t i, auto access) HWY_ATTR {
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

void activation_backward(const graph::ActivationBackward<float>& op) {
  in_parallel(op.n, kGrainElements, HWY_DYNAMIC_DISPATCH(activation_backward_kernel), op);
}

namespace {

void run_forward(const graph::ActivationForward<float>& op) {
  in_parallel(op.n, kGrainElements, HWY_DYNAMIC_DISPATCH(activation_forward_kernel), op);
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward>(graph::OpKind::kActivation, "simd"),
    exec::row<activation_backward>(graph::OpKind::kActivationBackward, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuActivation = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
