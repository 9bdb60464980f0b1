#include "runtime/cpu/ops/rms_norm.h"

#include <cmath>
#include <cstring>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/row_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/rms_norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Rows [begin, end). Each is read from memory once, and then again from the first-level cache.
void rms_norm_forward_kernel(const graph::RmsNormForward<float>& op, int64_t begin, int64_t end) {
  const int64_t columns = op.columns;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = op.places.begin(row, columns);
    const float* x = op.x + first;
    RowSum squares;
    if (op.delta != nullptr) {
      const float* delta = op.delta + first;
      float* sum = op.sum + first;
      for_each_row_vector(columns, [&](size_t i, auto part, auto access) HWY_ATTR {
        const Vec v = hn::Add(access.load(x + i), access.load(delta + i));
        access.store(v, sum + i);
        squares.add_product(part, v, v);
      });
      x = sum;
    } else {
      for_each_row_vector(columns, [&](size_t i, auto part, auto access) HWY_ATTR {
        const Vec v = access.load(x + i);
        squares.add_product(part, v, v);
      });
    }
    const float rstd = 1.0f / std::sqrt(squares.total() / static_cast<float>(columns) + op.epsilon);
    op.rstd[row] = rstd;

    const Vec rstd_v = set(rstd);
    float* y = op.y + first;
    for_each_vector(columns, [&](size_t i, auto access) HWY_ATTR {
      access.store(hn::Mul(hn::Mul(access.load(x + i), rstd_v), access.load(op.gamma + i)), y + i);
    });
  }
}

// d_sum of rows [begin, end), and their contribution to d_gamma in `partial` (columns).
void rms_norm_backward_kernel(const graph::RmsNormBackward<float>& op,
                              float* partial,
                              int64_t begin,
                              int64_t end) {
  const int64_t columns = op.columns;
  std::memset(partial, 0, columns * sizeof(float));
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = op.places.begin(row, columns);
    const float* d_y = op.d_y + first;
    const float* x = op.sum + first;
    const Vec rstd = set(op.rstd[row]);
    RowSum g_xhat_sum;
    for_each_row_vector(columns, [&](size_t i, auto part, auto access) HWY_ATTR {
      const Vec g = hn::Mul(access.load(d_y + i), access.load(op.gamma + i));
      g_xhat_sum.add_product(part, g, hn::Mul(access.load(x + i), rstd));
    });
    const Vec g_xhat_mean = set(g_xhat_sum.total() / static_cast<float>(columns));

    const float* d_residual = op.d_residual == nullptr ? nullptr : op.d_residual + first;
    float* d_sum = op.d_sum + first;
    for_each_vector(columns, [&](size_t i, auto access) HWY_ATTR {
      const Vec d = access.load(d_y + i);
      const Vec xhat = hn::Mul(access.load(x + i), rstd);
      access.store(hn::MulAdd(d, xhat, access.load(partial + i)), partial + i);
      const Vec g = hn::Mul(d, access.load(op.gamma + i));
      Vec result = hn::Mul(rstd, hn::NegMulAdd(xhat, g_xhat_mean, g));
      if (d_residual != nullptr) result = hn::Add(access.load(d_residual + i), result);
      access.store(result, d_sum + i);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(rms_norm_forward_kernel);
HWY_EXPORT(rms_norm_backward_kernel);

void rms_norm_forward(const graph::RmsNormForward<float>& op) {
  in_parallel(op.rows, grain_rows(op.columns), HWY_DYNAMIC_DISPATCH(rms_norm_forward_kernel), op);
}

size_t rms_norm_backward_workspace_bytes(const graph::RmsNormBackward<float>& op) {
  return row_norm_parts(op.rows).count * op.columns * sizeof(float);
}

void rms_norm_backward(const graph::RmsNormBackward<float>& op) {
  const RowParts parts = row_norm_parts(op.rows);
  float* const partial = op.workspace;  // (parts, columns)
  const auto kernel = HWY_DYNAMIC_DISPATCH(rms_norm_backward_kernel);
  for_each_part(parts, op.columns, [&](int64_t part, int64_t begin, int64_t end) {
    kernel(op, partial + part * op.columns, begin, end);
  });
  sum_parts(partial, parts, op.columns, op.columns, op.d_gamma);
}

namespace {

constexpr exec::Implementation kRows[] = {
    exec::row<rms_norm_forward>(graph::OpKind::kRmsNorm, "simd"),
    exec::row<rms_norm_backward, rms_norm_backward_workspace_bytes>(graph::OpKind::kRmsNormBackward,
                                                                    "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuRmsNorm = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
