#include "runtime/cpu/flat/power_sgd.h"

#include <algorithm>
#include <type_traits>

#include "hwy/cache_control.h"
#include "runtime/base/error.h"
#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/row_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/flat/power_sgd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

#ifndef LOCKSTEP_RUNTIME_CPU_POWER_SGD_CC
#define LOCKSTEP_RUNTIME_CPU_POWER_SGD_CC
namespace lockstep::cpu {

// Some rows of a thin factor (columns, rank), transposed, so that vectors can run along the columns
// of the matrix. It is on the stack and stays in the second-level cache. Its size depends on the
// shape alone. 4608 columns of rank 4 fit: reading a matrix in two pieces takes 1.5 times as long.
struct Panel {
  static constexpr int64_t kElements = 20480;
  static constexpr int64_t kPadding = 16;  // floats of the widest vectors
  alignas(64) float at[kElements];         // (rank, stride)
  int rank;
  int64_t width;
  // More than the width: with a power of two, rows would compete for the same cache lines.
  int64_t stride;

  // The columns of each pass: at most as many as fit, and about equally many in each.
  static int64_t columns_at_once(int64_t columns, int rank) {
    const int64_t max_columns = (kElements / rank - kPadding) / kPadding * kPadding;
    const int64_t passes = std::max<int64_t>(1, (columns + max_columns - 1) / max_columns);
    return padded((columns + passes - 1) / passes);
  }
  static int64_t padded(int64_t columns) { return (columns + kPadding - 1) / kPadding * kPadding; }
  void set_shape(int new_rank, int64_t columns) {
    rank = new_rank;
    width = columns;
    stride = padded(columns) + kPadding;
  }
  float* row(int k) { return at + k * stride; }
  const float* row(int k) const { return at + k * stride; }

  void load(const float* factor) {  // (width, rank)
    for (int64_t c = 0; c < width; ++c) {
      for (int k = 0; k < rank; ++k) row(k)[c] = factor[c * rank + k];
    }
  }
  void store(float* factor) const {  // (width, rank)
    for (int64_t c = 0; c < width; ++c) {
      for (int k = 0; k < rank; ++k) factor[c * rank + k] = row(k)[c];
    }
  }
  void clear() { std::fill_n(at, rank * stride, 0.0f); }
  void add(const Panel& other) {
    for (int64_t i = 0; i < rank * stride; ++i) at[i] += other.at[i];
  }
};

}  // namespace lockstep::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Calls body(first, count) for groups of at most four columns of a thin factor, as many as
// registers hold; `count` is a compile-time constant.
template <typename Body>
HWY_INLINE void for_each_group(int rank, Body&& body) {
  int first = 0;
  for (; first + 4 <= rank; first += 4) body(first, std::integral_constant<int, 4>{});
  switch (rank - first) {
    case 1: return body(first, std::integral_constant<int, 1>{});
    case 2: return body(first, std::integral_constant<int, 2>{});
    case 3: return body(first, std::integral_constant<int, 3>{});
    default: return;
  }
}

// Sums a vector's lanes by the tree of RowSum, without a round trip through memory.
template <typename D>
HWY_INLINE float fold([[maybe_unused]] D d, hn::Vec<D> v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(d) > 1) {
    const hn::Half<D> half;
    return fold(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
#endif
  return hn::GetLane(v);
}
HWY_INLINE float fold(Vec (&parts)[kParts]) {
  for (size_t width = kParts / 2; width > 0; width /= 2) {
    for (size_t k = 0; k < width; ++k) parts[k] = hn::Add(parts[k], parts[k + width]);
  }
  return fold(F32(), parts[0]);
}

// `left` = or += kRows rows of the matrix times kCount columns of the panel.
template <int kRows, int kCount>
HWY_INLINE void left_tile(const float* matrix,  // (kRows, columns)
                          int64_t columns,
                          const Panel& panel,
                          int first,
                          bool add,
                          float* left,  // (kRows, rank)
                          int rank) {
  const float* factors[kCount];
  for (int k = 0; k < kCount; ++k) factors[k] = panel.row(first + k);
  Vec sums[kRows][kCount][kParts];
  for (auto& of_row : sums) {
    for (auto& sum : of_row) std::fill_n(sum, kParts, hn::Zero(F32()));
  }
  for_each_row_vector(panel.width, [&](size_t i, auto part, auto access) HWY_ATTR {
    Vec m[kRows];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      m[row] = access.load(matrix + row * columns + i);
      if (first == 0) hwy::Prefetch(matrix + (row + kRows) * columns + i);
    }
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k) {
      const Vec r = access.load(factors[k] + i);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        Vec& sum = sums[row][k][part];
        sum = hn::MulAdd(m[row], r, sum);
      }
    }
  });
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < kCount; ++k) {
      float& out = left[row * rank + first + k];
      const float total = fold(sums[row][k]);
      out = add ? out + total : total;
    }
  }
}

// Rows whose sums stay in registers. AVX2 has only 16 registers, of half the width.
constexpr int kLeftRows = kParts == 1 ? 4 : 1;

void left_kernel(const float* matrix,
                 const float* right,
                 const collectives::PowerSgdShape& shape,
                 float* left,
                 int64_t begin,
                 int64_t end) {
  const int64_t columns = shape.columns;
  const int64_t max_columns = Panel::columns_at_once(columns, shape.rank);
  const int rank = shape.rank;
  Panel panel;
  for (int64_t first = 0; first < columns; first += max_columns) {
    panel.set_shape(rank, std::min(max_columns, columns - first));
    panel.load(right + first * rank);
    const auto rows = [&](int64_t row, auto count) HWY_ATTR {
      for_each_group(rank, [&](int k, auto ranks) HWY_ATTR {
        left_tile<count, ranks>(
            matrix + row * columns + first, columns, panel, k, first > 0, left + row * rank, rank);
      });
    };
    int64_t row = begin;
    for (; row + kLeftRows <= end; row += kLeftRows)
      rows(row, std::integral_constant<int, kLeftRows>{});
    for (; row < end; ++row) rows(row, std::integral_constant<int, 1>{});
  }
}

constexpr int kRightRows = kParts == 1 ? 4 : 2;  // rows whose part of `left` stays in registers
constexpr int64_t kPanelRows = 512;  // added up before they are added to the sums of earlier rows

// sums += kRows rows of the matrix, each times its row of `left`.
template <int kRows, int kCount>
HWY_INLINE void right_rows(const float* matrix,  // (kRows, columns)
                           int64_t columns,
                           const float* left,  // (kRows, rank)
                           int rank,
                           int first,
                           Panel& sums) {
  float* to[kCount];
  for (int k = 0; k < kCount; ++k) to[k] = sums.row(first + k);
  Vec factors[kRows][kCount];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k) factors[row][k] = set(left[row * rank + first + k]);
  }
  for_each_vector(sums.width, [&](size_t i, auto access) HWY_ATTR {
    Vec sum[kCount];
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k) sum[k] = hn::Load(F32(), to[k] + i);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const Vec m = access.load(matrix + row * columns + i);
      if (first == 0) hwy::Prefetch(matrix + (row + kRows) * columns + i);
#pragma GCC unroll 8
      for (int k = 0; k < kCount; ++k) sum[k] = hn::MulAdd(m, factors[row][k], sum[k]);
    }
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k) hn::Store(sum[k], F32(), to[k] + i);
  });
}

// total = the sums over `rows` rows, for the columns of the panel.
void right_kernel(const float* matrix,  // (rows, columns)
                  const float* left,    // (rows, rank)
                  int64_t rows,
                  int64_t columns,
                  Panel& total) {
  const int rank = total.rank;
  Panel rest;
  rest.set_shape(rank, total.width);
  for (int64_t begin = 0; begin == 0 || begin < rows; begin += kPanelRows) {
    Panel& sums = begin == 0 ? total : rest;
    sums.clear();
    const auto add = [&](int64_t row, auto count) HWY_ATTR {
      for_each_group(rank, [&](int k, auto ranks) HWY_ATTR {
        right_rows<count, ranks>(matrix + row * columns, columns, left + row * rank, rank, k, sums);
      });
    };
    const int64_t end = std::min(begin + kPanelRows, rows);
    int64_t row = begin;
    for (; row + kRightRows <= end; row += kRightRows)
      add(row, std::integral_constant<int, kRightRows>{});
    for (; row < end; ++row) add(row, std::integral_constant<int, 1>{});
    if (begin > 0) total.add(rest);
  }
}

// A row of the matrix = or += kCount columns of `left` times the panel.
template <int kCount>
HWY_INLINE void product_row(const float* left, const Panel& panel, int first, float* matrix) {
  Vec factors[kCount];
  const float* across[kCount];
  for (int k = 0; k < kCount; ++k) {
    factors[k] = set(left[first + k]);
    across[k] = panel.row(first + k);
  }
  for_each_vector(panel.width, [&](size_t i, auto access) HWY_ATTR {
    Vec sum = first > 0 ? access.load(matrix + i) : hn::Zero(F32());
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k)
      sum = hn::MulAdd(factors[k], hn::Load(F32(), across[k] + i), sum);
    access.store(sum, matrix + i);
  });
}

void product_kernel(const float* left,
                    const float* right,
                    const collectives::PowerSgdShape& shape,
                    float* matrix,
                    int64_t begin,
                    int64_t end) {
  const int64_t columns = shape.columns;
  const int64_t max_columns = Panel::columns_at_once(columns, shape.rank);
  Panel panel;
  for (int64_t first = 0; first < columns; first += max_columns) {
    panel.set_shape(shape.rank, std::min(max_columns, columns - first));
    panel.load(right + first * shape.rank);
    for (int64_t row = begin; row < end; ++row) {
      for_each_group(shape.rank, [&](int k, auto ranks) HWY_ATTR {
        product_row<ranks>(left + row * shape.rank, panel, k, matrix + row * columns + first);
      });
    }
  }
}

void subtract_kernel(float* matrix, const float* product, float factor, int64_t n) {
  const Vec by = set(factor);
  for_each_vector(n, [&](size_t i, auto access) HWY_ATTR {
    access.store(hn::NegMulAdd(by, access.load(product + i), access.load(matrix + i)), matrix + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(left_kernel);
HWY_EXPORT(right_kernel);
HWY_EXPORT(product_kernel);
HWY_EXPORT(subtract_kernel);

namespace {

void check_rank(int rank) {
  LOCKSTEP_CHECK(rank >= 1 && rank <= collectives::kMaxPowerSgdRank, "rank = {}", rank);
}

}  // namespace

void power_sgd_left(const float* matrix,
                    const float* right,
                    const collectives::PowerSgdShape& shape,
                    float* left) {
  check_rank(shape.rank);
  in_parallel(shape.rows,
              grain_rows(shape.columns),
              HWY_DYNAMIC_DISPATCH(left_kernel),
              matrix,
              right,
              shape,
              left);
}

void power_sgd_right(const float* matrix,
                     const float* left,
                     const collectives::PowerSgdShape& shape,
                     float* right) {
  check_rank(shape.rank);
  const auto kernel = HWY_DYNAMIC_DISPATCH(right_kernel);
  constexpr int64_t kMaxParts = 8, kMinRows = 128;
  const RowParts parts(shape.rows, kMaxParts, kMinRows);
  const int64_t columns = shape.columns;
  const int64_t max_columns = Panel::columns_at_once(columns, shape.rank);
  Panel sums[kMaxParts];
  for (int64_t first = 0; first < columns; first += max_columns) {
    for (Panel& of_part : sums)
      of_part.set_shape(shape.rank, std::min(max_columns, columns - first));
    for_each_part(parts, columns, [&](int64_t part, int64_t begin, int64_t end) {
      kernel(matrix + begin * columns + first,
             left + begin * shape.rank,
             end - begin,
             columns,
             sums[part]);
    });
    for (int64_t part = 1; part < parts.count; ++part) sums[0].add(sums[part]);
    sums[0].store(right + first * shape.rank);
  }
}

void power_sgd_product(const float* left,
                       const float* right,
                       const collectives::PowerSgdShape& shape,
                       float* matrix) {
  check_rank(shape.rank);
  in_parallel(shape.rows,
              grain_rows(shape.columns),
              HWY_DYNAMIC_DISPATCH(product_kernel),
              left,
              right,
              shape,
              matrix);
}

void power_sgd_subtract(float* matrix, const float* product, float factor, int64_t n) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(subtract_kernel);
  parallel_for(n, kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(matrix + begin, product + begin, factor, end - begin);
  });
}

void fill_zero_columns(float* right, int64_t columns, int rank) {
  check_rank(rank);
  for (int k = 0; k < rank; ++k) {
    int64_t zeros = k;  // index of the column's first non-zero element
    while (zeros < columns * rank && right[zeros] == 0) zeros += rank;
    if (zeros < columns * rank) continue;
    for (int64_t i = k; i < columns * rank; i += rank) right[i] = collectives::power_sgd_noise(i);
  }
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
