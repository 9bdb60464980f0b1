#include "runtime/graph/ops/gated_activation.h"

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/gated_activation.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

void gated_activation_forward_kernel(const graph::GatedActivationForward<float>& op,
                                     int64_t begin,
                                     int64_t end) {
  with_activation(op.activation, [&](auto kind) HWY_ATTR {
    for (int64_t row = begin; row < end; ++row) {
      const float *gate = op.x + row * 2 * op.columns, *up = gate + op.columns;
      float* y = op.y + row * op.columns;
      for_each_vector(op.columns, [&](size_t i, auto access) HWY_ATTR {
        access.store(hn::Mul(activate<kind>(access.load(gate + i)), access.load(up + i)), y + i);
      });
    }
  });
}

void gated_activation_backward_kernel(const graph::GatedActivationBackward<float>& op,
                                      int64_t begin,
                                      int64_t end) {
  with_activation(op.activation, [&](auto kind) HWY_ATTR {
    for (int64_t row = begin; row < end; ++row) {
      const float* d_y = op.d_y + row * op.columns;
      const float *gate = op.x + row * 2 * op.columns, *up = gate + op.columns;
      float *d_gate = op.d_x + row * 2 * op.columns, *d_up = d_gate + op.columns;
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
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(gated_activation_forward_kernel);
HWY_EXPORT(gated_activation_backward_kernel);

namespace {

void run_forward(const graph::GatedActivationForward<float>& op) {
  in_parallel(
      op.rows, grain_rows(op.columns), HWY_DYNAMIC_DISPATCH(gated_activation_forward_kernel), op);
}

void run_backward(const graph::GatedActivationBackward<float>& op) {
  in_parallel(
      op.rows, grain_rows(op.columns), HWY_DYNAMIC_DISPATCH(gated_activation_backward_kernel), op);
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward>(graph::OpKind::kGatedActivation, "simd"),
    exec::row<run_backward>(graph::OpKind::kGatedActivationBackward, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuGatedActivation = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
