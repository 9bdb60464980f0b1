#include "runtime/graph/ops/softmax.h"

#include <cmath>
#include <type_traits>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/softmax.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Rows [begin, end).
template <typename T>
void softmax_forward(const graph::SoftmaxForward<T>& op, int64_t begin, int64_t end) {
  // Floats keep the exponentials until their sum is known; otherwise they are computed again, so
  // that results are rounded once.
  constexpr bool kKeeps = std::is_same_v<T, float>;
  const auto columns = static_cast<size_t>(op.columns);
  for (int64_t row = begin; row < end; ++row) {
    const T* x = op.x + row * op.columns;
    T* y = op.y + row * op.columns;
    const float maximum = row_max(x, columns);
    // If all elements are -infinity and or_zero is set, 0 is subtracted, so that the exponentials
    // are 0, not NaN.
    const Vec largest = set(op.or_zero && maximum == RowMax::kNone ? 0 : maximum);
    RowSum sum;
    for_each_row_vector(columns, [&](size_t i, auto part, auto access) HWY_ATTR {
      const Vec e = exp(hn::Sub(access.load(x + i), largest));
      if (kKeeps && !op.log) access.store(e, y + i);
      sum.add(part, access.keep(e));
    });
    if (op.log) {
      const Vec log_sum = set(static_cast<float>(std::log(double{sum.total()})));
      for_each_vector(columns, [&](size_t i, auto access) HWY_ATTR {
        access.store(hn::Sub(hn::Sub(access.load(x + i), largest), log_sum), y + i);
      });
    } else {
      const float total = sum.total();
      const Vec scale = set(total == 0 ? 0 : 1.0f / total);
      for_each_vector(columns, [&](size_t i, auto access) HWY_ATTR {
        const Vec e = kKeeps ? access.load(y + i) : exp(hn::Sub(access.load(x + i), largest));
        access.store(hn::Mul(e, scale), y + i);
      });
    }
  }
}

template <typename T>
void softmax_backward(const graph::SoftmaxBackward<T>& op, int64_t begin, int64_t end) {
  const auto columns = static_cast<size_t>(op.columns);
  for (int64_t row = begin; row < end; ++row) {
    const T *d_y = op.d_y + row * op.columns, *y = op.y + row * op.columns;
    T* d_x = op.d_x + row * op.columns;
    const Vec sum = set(op.log ? row_sum(d_y, columns) : row_dot(d_y, y, columns));
    for_each_vector(columns, [&](size_t i, auto access) HWY_ATTR {
      const Vec d = access.load(d_y + i), value = access.load(y + i);
      access.store(op.log ? hn::NegMulAdd(exp(value), sum, d) : hn::Mul(value, hn::Sub(d, sum)),
                   d_x + i);
    });
  }
}

void softmax_forward_kernel(AnyStored<graph::SoftmaxForward> stored, int64_t begin, int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR { softmax_forward(op, begin, end); });
}
void softmax_backward_kernel(AnyStored<graph::SoftmaxBackward> stored, int64_t begin, int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR { softmax_backward(op, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(softmax_forward_kernel);
HWY_EXPORT(softmax_backward_kernel);

namespace {

template <typename T>
void run_forward(const graph::SoftmaxForward<T>& op) {
  in_parallel(op.rows, grain_rows(op.columns), HWY_DYNAMIC_DISPATCH(softmax_forward_kernel), op);
}

template <typename T>
void run_backward(const graph::SoftmaxBackward<T>& op) {
  in_parallel(op.rows, grain_rows(op.columns), HWY_DYNAMIC_DISPATCH(softmax_backward_kernel), op);
}

constexpr exec::Implementation kRows[] = {
    native_row<run_forward<float>, run_forward<BFloat16>>(graph::OpKind::kSoftmax, "simd"),
    native_row<run_backward<float>, run_backward<BFloat16>>(graph::OpKind::kSoftmaxBackward,
                                                            "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuSoftmax = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
