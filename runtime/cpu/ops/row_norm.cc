#include "runtime/cpu/ops/row_norm.h"

#include <cmath>
#include <cstring>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/row_parts.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/row_norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// x without the mean of its row, if rows are centred.
template <bool kCentred>
HWY_INLINE Vec centre(Vec x, Vec mean) {
  if constexpr (kCentred) return hn::Sub(x, mean);
  return x;
}

// Passes over a row that stays in the first-level cache. Centred: the sum of x, the squared
// differences from the mean (not E[x^2] - E[x]^2, which cancels), the output. Otherwise: the sum of
// squares, the output.
template <bool kCentred, typename T>
HWY_INLINE void normalize_rows(const graph::RowNormForward<T>& op, int64_t begin, int64_t end) {
  const int64_t columns = op.columns;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = op.places.begin(row, columns);
    const T* x = op.x + first;
    RowSum total, squares;
    const auto add = [&](auto part, Vec v) HWY_ATTR {
      if constexpr (kCentred) {
        total.add(part, v);
      } else {
        squares.add_product(part, v, v);
      }
    };
    if (op.delta != nullptr) {
      const T* delta = op.delta + first;
      T* sum = op.sum + first;
      for_each_row_vector(columns, [&](size_t i, auto part, auto access) HWY_ATTR {
        // As the norm of a sum that is in memory already would read it.
        const Vec v = as_stored<T>(hn::Add(access.load(x + i), access.load(delta + i)));
        access.store(v, sum + i);
        add(part, v);
      });
      x = sum;
    } else {
      for_each_row_vector(columns, [&](size_t i, auto part, auto access) HWY_ATTR {
        add(part, access.load(x + i));
      });
    }
    Vec mean = hn::Zero(F32());
    if constexpr (kCentred) {
      op.mean[row] = total.total() / static_cast<float>(columns);
      mean = set(op.mean[row]);
      for_each_row_vector(columns, [&](size_t i, auto part, auto access) HWY_ATTR {
        const Vec distance = access.keep(hn::Sub(access.load(x + i), mean));
        squares.add_product(part, distance, distance);
      });
    }
    op.rstd[row] = 1.0f / std::sqrt(squares.total() / static_cast<float>(columns) + op.epsilon);

    const Vec rstd = set(op.rstd[row]);
    T* y = op.y + first;
    if (op.beta != nullptr) {
      for_each_vector(columns, [&](size_t i, auto access) HWY_ATTR {
        const Vec xhat = hn::Mul(centre<kCentred>(access.load(x + i), mean), rstd);
        access.store(hn::MulAdd(xhat, access.load(op.gamma + i), access.load(op.beta + i)), y + i);
      });
    } else {
      for_each_vector(columns, [&](size_t i, auto access) HWY_ATTR {
        const Vec xhat = hn::Mul(centre<kCentred>(access.load(x + i), mean), rstd);
        access.store(hn::Mul(xhat, access.load(op.gamma + i)), y + i);
      });
    }
  }
}

void row_norm_forward_kernel(AnyStored<graph::RowNormForward> stored, int64_t begin, int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR {
    op.centred ? normalize_rows<true>(op, begin, end) : normalize_rows<false>(op, begin, end);
  });
}

template <bool kCentred, typename T>
HWY_INLINE void rows_backward(const graph::RowNormBackward<T>& op,
                              float* partial,
                              int64_t begin,
                              int64_t end) {
  const int64_t columns = op.columns;
  float* d_gamma = partial;
  float* d_beta = partial + columns;
  std::memset(partial, 0, op.sums() * sizeof(float));
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = op.places.begin(row, columns);
    const T* d_y = op.d_y + first;
    const T* x = op.sum + first;
    const Vec mean = set(kCentred ? op.mean[row] : 0.0f), rstd = set(op.rstd[row]);
    RowSum g_sum, g_xhat_sum;
    for_each_row_vector(columns, [&](size_t i, auto part, auto access) HWY_ATTR {
      const Vec g = hn::Mul(access.load(d_y + i), access.load(op.gamma + i));
      if constexpr (kCentred) g_sum.add(part, g);
      const Vec xhat = hn::Mul(centre<kCentred>(access.load(x + i), mean), rstd);
      g_xhat_sum.add_product(part, g, xhat);
    });
    const Vec g_mean = set(kCentred ? g_sum.total() / static_cast<float>(columns) : 0.0f);
    const Vec g_xhat_mean = set(g_xhat_sum.total() / static_cast<float>(columns));

    const T* d_residual = op.d_residual == nullptr ? nullptr : op.d_residual + first;
    T* d_sum = op.d_sum + first;
    for_each_vector(columns, [&](size_t i, auto access) HWY_ATTR {
      const Vec d = access.load(d_y + i);
      const Vec xhat = hn::Mul(centre<kCentred>(access.load(x + i), mean), rstd);
      access.store(hn::MulAdd(d, xhat, access.load(d_gamma + i)), d_gamma + i);
      if constexpr (kCentred) access.store(hn::Add(access.load(d_beta + i), d), d_beta + i);
      const Vec g = centre<kCentred>(hn::Mul(d, access.load(op.gamma + i)), g_mean);
      Vec result = hn::Mul(rstd, hn::NegMulAdd(xhat, g_xhat_mean, g));
      if (d_residual != nullptr) result = hn::Add(access.load(d_residual + i), result);
      access.store(result, d_sum + i);
    });
  }
}

// d_sum of rows [begin, end), and their contribution to d_gamma and, if centred, d_beta in
// `partial`: (columns) or (2, columns).
void row_norm_backward_kernel(AnyStored<graph::RowNormBackward> stored,
                              float* partial,
                              int64_t begin,
                              int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR {
    op.centred ? rows_backward<true>(op, partial, begin, end)
               : rows_backward<false>(op, partial, begin, end);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(row_norm_forward_kernel);
HWY_EXPORT(row_norm_backward_kernel);

template <typename T>
void row_norm_forward(const graph::RowNormForward<T>& op) {
  in_parallel(op.rows, grain_rows(op.columns), HWY_DYNAMIC_DISPATCH(row_norm_forward_kernel), op);
}
template void row_norm_forward(const graph::RowNormForward<float>& op);
template void row_norm_forward(const graph::RowNormForward<BFloat16>& op);

size_t row_norm_backward_workspace_bytes(const graph::RowNormBackward<float>& op) {
  return row_norm_parts(op.rows).count * op.sums() * sizeof(float);
}

template <typename T>
void row_norm_backward(const graph::RowNormBackward<T>& op) {
  const RowParts parts = row_norm_parts(op.rows);
  const int64_t stride = op.sums();
  float* const partial = op.workspace;  // (parts, stride)
  const auto kernel = HWY_DYNAMIC_DISPATCH(row_norm_backward_kernel);
  for_each_part(parts, op.columns, [&](int64_t part, int64_t begin, int64_t end) {
    kernel(op, partial + part * stride, begin, end);
  });
  sum_parts(partial, parts, stride, op.columns, op.d_gamma);
  if (op.d_beta != nullptr) sum_parts(partial + op.columns, parts, stride, op.columns, op.d_beta);
}
template void row_norm_backward(const graph::RowNormBackward<float>& op);
template void row_norm_backward(const graph::RowNormBackward<BFloat16>& op);

namespace {

constexpr exec::Implementation forward(graph::OpKind kind) {
  return native_row<row_norm_forward<float>, row_norm_forward<BFloat16>>(kind, "simd");
}
constexpr exec::Implementation backward(graph::OpKind kind) {
  return native_row<row_norm_backward<float>,
                    row_norm_backward<BFloat16>,
                    row_norm_backward_workspace_bytes>(kind, "simd");
}

constexpr exec::Implementation kRows[] = {forward(graph::OpKind::kLayerNorm),
                                          backward(graph::OpKind::kLayerNormBackward),
                                          forward(graph::OpKind::kRmsNorm),
                                          backward(graph::OpKind::kRmsNormBackward)};

}  // namespace

constinit const exec::Implementations kCpuRowNorm = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
