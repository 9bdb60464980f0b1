#include "runtime/graph/ops/gated_activation.h"

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/gated_activation.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

void gated_activation_forward_kernel(AnyStored<graph::GatedActivationForward> stored,
                                     int64_t begin,
                                     int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR {
    with_activation(op.activation, [&](auto kind) HWY_ATTR {
      for (int64_t row = begin; row < end; ++row) {
        const auto *gate = op.x + row * 2 * op.columns, *up = gate + op.columns;
        auto* y = op.y + row * op.columns;
        for_each_vector(op.columns, [&](size_t i, auto access) HWY_ATTR {
          access.store(hn::Mul(activate<kind>(access.load(gate + i)), access.load(up + i)), y + i);
        });
      }
    });
  });
}

void gated_activation_backward_kernel(AnyStored<graph::GatedActivationBackward> stored,
                                      int64_t begin,
                                      int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR {
    with_activation(op.activation, [&](auto kind) HWY_ATTR {
      for (int64_t row = begin; row < end; ++row) {
        const auto* d_y = op.d_y + row * op.columns;
        const auto *gate = op.x + row * 2 * op.columns, *up = gate + op.columns;
        auto *d_gate = op.d_x + row * 2 * op.columns, *d_up = d_gate + op.columns;
        for_each_vector(op.columns, [&](size_t i, auto access) HWY_ATTR {
          const Vec d = access.load(d_y + i), x = access.load(gate + i);
          const Vec value = activate<kind>(x);
          const Vec saved = graph::saves_pre_activation(kind) ? x : value;
          const Vec d_value = hn::Mul(d, access.load(up + i));
          access.store(activation_backward<kind>(d_value, saved), d_gate + i);
          access.store(hn::Mul(d, value), d_up + i);
        });
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(gated_activation_forward_kernel);
HWY_EXPORT(gated_activation_backward_kernel);

namespace {

template <typename T>
void run_forward(const graph::GatedActivationForward<T>& op) {
  in_parallel(
      op.rows, grain_rows(op.columns), HWY_DYNAMIC_DISPATCH(gated_activation_forward_kernel), op);
}

template <typename T>
void run_backward(const graph::GatedActivationBackward<T>& op) {
  in_parallel(
      op.rows, grain_rows(op.columns), HWY_DYNAMIC_DISPATCH(gated_activation_backward_kernel), op);
}

constexpr exec::Implementation kRows[] = {
    native_row<run_forward<float>, run_forward<BFloat16>>(graph::OpKind::kGatedActivation, "simd"),
    native_row<run_backward<float>, run_backward<BFloat16>>(graph::OpKind::kGatedActivationBackward,
                                                            "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuGatedActivation = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
