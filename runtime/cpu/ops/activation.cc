#include "runtime/cpu/ops/activation.h"

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/activation.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

void activation_forward_kernel(AnyStored<graph::ActivationForward> stored,
                               int64_t begin,
                               int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR {
    const auto* x = op.x + begin;
    auto* y = op.y + begin;
    with_activation(op.activation, [&](auto kind) HWY_ATTR {
      for_each_vector(end - begin, [&](size_t i, auto access) HWY_ATTR {
        access.store(activate<kind>(access.load(x + i)), y + i);
      });
    });
  });
}

void activation_backward_kernel(AnyStored<graph::ActivationBackward> stored,
                                int64_t begin,
                                int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR {
    const auto *d_y = op.d_y + begin, *saved = op.saved + begin;
    auto* d_x = op.d_x + begin;
    with_activation(op.activation, [&](auto kind) HWY_ATTR {
      for_each_vector(end - begin, [&](size_t i, auto access) HWY_ATTR {
        access.store(activation_backward<kind>(access.load(d_y + i), access.load(saved + i)),
                     d_x + i);
      });
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

template <typename T>
void activation_backward(const graph::ActivationBackward<T>& op) {
  in_parallel(op.n, kGrainElements, HWY_DYNAMIC_DISPATCH(activation_backward_kernel), op);
}
template void activation_backward(const graph::ActivationBackward<float>& op);
template void activation_backward(const graph::ActivationBackward<BFloat16>& op);

namespace {

template <typename T>
void run_forward(const graph::ActivationForward<T>& op) {
  in_parallel(op.n, kGrainElements, HWY_DYNAMIC_DISPATCH(activation_forward_kernel), op);
}

constexpr exec::Implementation kRows[] = {
    native_row<run_forward<float>, run_forward<BFloat16>>(graph::OpKind::kActivation, "simd"),
    native_row<activation_backward<float>, activation_backward<BFloat16>>(
        graph::OpKind::kActivationBackward, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuActivation = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
