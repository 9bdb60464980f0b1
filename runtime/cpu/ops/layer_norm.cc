#include "runtime/graph/ops/layer_norm.h"

#include <cmath>
#include <cstring>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/row_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/layer_norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Three passes over a row that stays in the first-level cache: the sum, the squared differences
// from the mean (not E[x^2] - E[x]^2, which cancels), the output.
void layer_norm_forward_kernel(const graph::LayerNormForward<float>& op,
                               int64_t begin,
                               int64_t end) {
  const int64_t columns = op.columns;
  for (int64_t row = begin; row < end; ++row) {
    const float* x = op.x + row * columns;
    RowSum total;
    if (op.delta != nullptr) {
      const float* delta = op.delta + row * columns;
      float* sum = op.sum + row * columns;
      for_each_row_vector(columns, [&](size_t i, auto part, auto access) HWY_ATTR {
        const Vec v = hn::Add(access.load(x + i), access.load(delta + i));
        access.store(v, sum + i);
        total.add(part, v);
      });
      x = sum;
    } else {
      for_each_row_vector(columns, [&](size_t i, auto part, auto access) HWY_ATTR {
        total.add(part, access.load(x + i));
      });
    }
    const float mean = total.total() / static_cast<float>(columns);

    const Vec mean_v = set(mean);
    RowSum squares;
    for_each_row_vector(columns, [&](size_t i, auto part, auto access) HWY_ATTR {
      const Vec distance = access.keep(hn::Sub(access.load(x + i), mean_v));
      squares.add_product(part, distance, distance);
    });
    const float variance = squares.total() / static_cast<float>(columns);
    const float rstd = 1.0f / std::sqrt(variance + op.epsilon);

    const Vec rstd_v = set(rstd);
    float* y = op.y + row * columns;
    if (op.beta != nullptr) {
      for_each_vector(columns, [&](size_t i, auto access) HWY_ATTR {
        const Vec xhat = hn::Mul(hn::Sub(access.load(x + i), mean_v), rstd_v);
        access.store(hn::MulAdd(xhat, access.load(op.gamma + i), access.load(op.beta + i)), y + i);
      });
    } else {
      for_each_vector(columns, [&](size_t i, auto access) HWY_ATTR {
        const Vec xhat = hn::Mul(hn::Sub(access.load(x + i), mean_v), rstd_v);
        access.store(hn::Mul(xhat, access.load(op.gamma + i)), y + i);
      });
    }
    op.mean[row] = mean;
    op.rstd[row] = rstd;
  }
}

// d_sum of rows [begin, end), and their contribution to d_gamma and d_beta in `partial`: (2,
// columns), d_gamma first.
void layer_norm_backward_kernel(const graph::LayerNormBackward<float>& op,
                                float* partial,
                                int64_t begin,
                                int64_t end) {
  const int64_t columns = op.columns;
  float* d_gamma = partial;
  float* d_beta = partial + columns;
  std::memset(partial, 0, 2 * columns * sizeof(float));
  for (int64_t row = begin; row < end; ++row) {
    const float* d_y = op.d_y + row * columns;
    const float* x = op.sum + row * columns;
    const Vec mean = set(op.mean[row]), rstd = set(op.rstd[row]);
    RowSum g_sum, g_xhat_sum;
    for_each_row_vector(columns, [&](size_t i, auto part, auto access) HWY_ATTR {
      const Vec g = hn::Mul(access.load(d_y + i), access.load(op.gamma + i));
      const Vec xhat = hn::Mul(hn::Sub(access.load(x + i), mean), rstd);
      g_sum.add(part, g);
      g_xhat_sum.add_product(part, g, xhat);
    });
    const Vec g_mean = set(g_sum.total() / static_cast<float>(columns));
    const Vec g_xhat_mean = set(g_xhat_sum.total() / static_cast<float>(columns));

    const float* d_residual = op.d_residual == nullptr ? nullptr : op.d_residual + row * columns;
    float* d_sum = op.d_sum + row * columns;
    for_each_vector(columns, [&](size_t i, auto access) HWY_ATTR {
      const Vec d = access.load(d_y + i);
      const Vec xhat = hn::Mul(hn::Sub(access.load(x + i), mean), rstd);
      access.store(hn::MulAdd(d, xhat, access.load(d_gamma + i)), d_gamma + i);
      access.store(hn::Add(access.load(d_beta + i), d), d_beta + i);
      const Vec centred = hn::Sub(hn::Mul(d, access.load(op.gamma + i)), g_mean);
      Vec result = hn::Mul(rstd, hn::NegMulAdd(xhat, g_xhat_mean, centred));
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
HWY_EXPORT(layer_norm_forward_kernel);
HWY_EXPORT(layer_norm_backward_kernel);

namespace {

void run_forward(const graph::LayerNormForward<float>& op) {
  in_parallel(op.rows, grain_rows(op.columns), HWY_DYNAMIC_DISPATCH(layer_norm_forward_kernel), op);
}

size_t backward_workspace_bytes(const graph::LayerNormBackward<float>& op) {
  return row_norm_parts(op.rows).count * 2 * op.columns * sizeof(float);
}

void run_backward(const graph::LayerNormBackward<float>& op) {
  const RowParts parts = row_norm_parts(op.rows);
  float* const partial = op.workspace;  // (parts, 2, columns)
  const int64_t stride = 2 * op.columns;
  const auto kernel = HWY_DYNAMIC_DISPATCH(layer_norm_backward_kernel);
  for_each_part(parts, op.columns, [&](int64_t part, int64_t begin, int64_t end) {
    kernel(op, partial + part * stride, begin, end);
  });
  sum_parts(partial, parts, stride, op.columns, op.d_gamma);
  if (op.d_beta != nullptr) sum_parts(partial + op.columns, parts, stride, op.columns, op.d_beta);
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward>(graph::OpKind::kLayerNorm, "simd"),
    exec::row<run_backward, backward_workspace_bytes>(graph::OpKind::kLayerNormBackward, "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuLayerNorm = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
