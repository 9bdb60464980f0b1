#include "runtime/cpu/low_rank.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/grain.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/low_rank.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

#ifndef LOCKSTEP_RUNTIME_CPU_LOW_RANK_CC
#define LOCKSTEP_RUNTIME_CPU_LOW_RANK_CC
namespace lockstep::cpu {

// What is done with one column, the pivot, once its products with itself and the columns after it
// are known.
struct Elimination {
  int pivot = -1;                    // -1: none yet
  double scale = 0;                  // to norm 1
  double factors[kMaxLowRank] = {};  // of the pivot in each column after it
};

}  // namespace lockstep::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// ---- Products ----
// What goes over the columns of the matrix is turned first: of up to kPanel numbers of `right` at a
// time a panel (rank, width) of long rows lies on the stack, within the second cache. The shape
// alone fixes the panels, and the groups of rows that sums are taken over.

constexpr int64_t kPanel = 16384;

// A row of the panel is wider than what it holds: powers of two would compete for the same lines.
constexpr int64_t kPadding = kRowLanes;

int64_t most_columns(int rank) { return (kPanel / rank - kPadding) / 16 * 16; }

struct Panel {
  alignas(64) float at[kPanel];
  int64_t width = 0, stride = 0;

  void take(int64_t columns) {
    width = columns;
    stride = (columns + kPadding - 1) / kPadding * kPadding + kPadding;
  }
  float* row(int k) { return at + k * stride; }
  const float* row(int k) const { return at + k * stride; }

  // = rows first, first + 1, ... of `right`, turned.
  void load(const float* right, int rank, int64_t first, int64_t columns) {
    take(columns);
    for (int64_t c = 0; c < columns; ++c) {
      for (int k = 0; k < rank; ++k) row(k)[c] = right[(first + c) * rank + k];
    }
  }
};

// Calls body(first, count) for the columns of a factor, as many at once as registers hold; `count`
// is a constant.
template <int kMost, typename Body>
HWY_INLINE void for_each_group(int rank, Body&& body) {
  int first = 0;
  for (; first + kMost <= rank; first += kMost) body(first, std::integral_constant<int, kMost>{});
  if constexpr (kMost == 8) {
    if (rank - first >= 4) {
      body(first, std::integral_constant<int, 4>{});
      first += 4;
    }
  }
  switch (rank - first) {
    case 1: return body(first, std::integral_constant<int, 1>{});
    case 2: return body(first, std::integral_constant<int, 2>{});
    case 3: return body(first, std::integral_constant<int, 3>{});
    default: return;
  }
}

// `left` = or += kRows rows of the matrix by kCount columns of the panel.
template <int kRows, int kCount>
HWY_INLINE void left_tile(const float* matrix,  // (kRows, columns)
                          int64_t columns,
                          const Panel& panel,
                          int first,
                          bool add,
                          float* left,  // (kRows, rank)
                          int rank) {
  RowSum sums[kRows][kCount];
  for_each_row_vector(panel.width, [&](size_t i, auto part, auto access) HWY_ATTR {
    Vec m[kRows];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) m[row] = access.load(matrix + row * columns + i);
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k) {
      const Vec r = access.load(panel.row(first + k) + i);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) sums[row][k].add_product(part, m[row], r);
    }
  });
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < kCount; ++k) {
      float& out = left[row * rank + first + k];
      const float total = sums[row][k].total();
      out = add ? out + total : total;
    }
  }
}

// Sums that stay in registers: of AVX2 there are 16, which hold half as much each.
constexpr int kLeftRows = kParts == 1 ? 4 : 1;

void left_kernel(const float* matrix,
                 const float* right,
                 const LowRankShape& shape,
                 float* left,
                 int64_t begin,
                 int64_t end) {
  const int64_t columns = shape.columns, most = most_columns(shape.rank);
  const int rank = shape.rank;
  Panel panel;
  for (int64_t first = 0; first < columns; first += most) {
    panel.load(right, rank, first, std::min(most, columns - first));
    const auto rows = [&](int64_t row, auto count) HWY_ATTR {
      for_each_group<4>(rank, [&](int k, auto ranks) HWY_ATTR {
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

constexpr int64_t kRightRows = 8;    // added up in registers before they meet the sums in memory
constexpr int64_t kPanelRows = 512;  // added up in a panel before they meet the result

// sums += kRows rows of the matrix, each by its own numbers of `left`.
template <int kRows, int kCount>
HWY_INLINE void right_rows(const float* matrix,  // (kRows, columns)
                           int64_t columns,
                           const float* left,  // (kRows, rank)
                           int rank,
                           int first,
                           Panel& sums) {
  for_each_vector(sums.width, [&](size_t i, auto access) HWY_ATTR {
    Vec sum[kCount];
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k) sum[k] = hn::Load(F32(), sums.row(first + k) + i);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const Vec m = access.load(matrix + row * columns + i);
#pragma GCC unroll 8
      for (int k = 0; k < kCount; ++k)
        sum[k] = hn::MulAdd(m, set(left[row * rank + first + k]), sum[k]);
    }
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k) hn::Store(sum[k], F32(), sums.row(first + k) + i);
  });
}

// Columns [begin, end) of the matrix.
void right_kernel(const float* matrix,
                  const float* left,
                  const LowRankShape& shape,
                  float* right,
                  int64_t begin,
                  int64_t end) {
  const int64_t columns = shape.columns, most = most_columns(shape.rank);
  const int rank = shape.rank;
  Panel sums;
  for (int64_t first = begin; first < end; first += most) {
    sums.take(std::min(most, end - first));
    float* const out = right + first * rank;
    std::fill_n(out, sums.width * rank, 0.0f);
    for (int64_t panel_row = 0; panel_row < shape.rows; panel_row += kPanelRows) {
      std::fill_n(sums.at, rank * sums.stride, 0.0f);
      const auto rows = [&](int64_t row, auto count) HWY_ATTR {
        for_each_group<8>(rank, [&](int k, auto ranks) HWY_ATTR {
          right_rows<count, ranks>(
              matrix + row * columns + first, columns, left + row * rank, rank, k, sums);
        });
      };
      const int64_t panel_end = std::min(panel_row + kPanelRows, shape.rows);
      int64_t row = panel_row;
      for (; row + kRightRows <= panel_end; row += kRightRows)
        rows(row, std::integral_constant<int, kRightRows>{});
      for (; row < panel_end; ++row) rows(row, std::integral_constant<int, 1>{});
      for (int64_t c = 0; c < sums.width; ++c) {
        for (int k = 0; k < rank; ++k) out[c * rank + k] += sums.row(k)[c];
      }
    }
  }
}

// A row of the matrix = or += kCount columns of `left` and the panel.
template <int kCount>
HWY_INLINE void product_row(const float* left, const Panel& panel, int first, float* matrix) {
  Vec factors[kCount];
  for (int k = 0; k < kCount; ++k) factors[k] = set(left[first + k]);
  for_each_vector(panel.width, [&](size_t i, auto access) HWY_ATTR {
    Vec sum = first > 0 ? access.load(matrix + i) : hn::Zero(F32());
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k)
      sum = hn::MulAdd(factors[k], hn::Load(F32(), panel.row(first + k) + i), sum);
    access.store(sum, matrix + i);
  });
}

void product_kernel(const float* left,
                    const float* right,
                    const LowRankShape& shape,
                    float* matrix,
                    int64_t begin,
                    int64_t end) {
  const int64_t columns = shape.columns, most = most_columns(shape.rank);
  Panel panel;
  for (int64_t first = 0; first < columns; first += most) {
    panel.load(right, shape.rank, first, std::min(most, columns - first));
    for (int64_t row = begin; row < end; ++row) {
      for_each_group<8>(shape.rank, [&](int k, auto ranks) HWY_ATTR {
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

// ---- Orthonormal columns ----

using F64 = hn::ScalableTag<double>;
using Doubles = hn::Vec<F64>;
using HalfF32 = hn::Rebind<float, F64>;
constexpr int kWideLanes = HWY_LANES(double);

// The first `count` floats of a row, at most a vector of doubles.
HWY_INLINE Doubles load_wide(const float* from, int count) {
  if constexpr (kWideLanes > 1) {
    if (count < kWideLanes)
      return hn::PromoteTo(F64(), hn::MaskedLoad(hn::FirstN(HalfF32(), count), HalfF32(), from));
  }
  return hn::PromoteTo(F64(), hn::LoadU(HalfF32(), from));
}
HWY_INLINE void store_wide(Doubles v, float* to, int count) {
  const auto narrow = hn::DemoteTo(HalfF32(), v);
  if constexpr (kWideLanes > 1) {
    if (count < kWideLanes)
      return hn::BlendedStore(narrow, hn::FirstN(HalfF32(), count), HalfF32(), to);
  }
  hn::StoreU(narrow, HalfF32(), to);
}

// Takes the pivot off the columns after it and scales it to norm 1. dots = the products of what
// becomes the next pivot with itself and with each column after it, over these rows. kVectors: at
// least of what a row holds after the pivot.
template <int kVectors>
HWY_INLINE void eliminate(
    float* left, int rank, const Elimination& step, int64_t begin, int64_t end, double* dots) {
  const int after = step.pivot + 1, count = rank - after;
  const int vectors = (count + kWideLanes - 1) / kWideLanes;
  Doubles sums[kVectors], factors[kVectors];
  for (int k = 0; k < kVectors; ++k) {
    sums[k] = hn::Zero(F64());
    factors[k] = k < vectors ? hn::LoadU(F64(), step.factors + k * kWideLanes) : sums[k];
  }
  for (int64_t row = begin; row < end; ++row) {
    float* const columns = left + row * rank + after;
    Doubles pivot = hn::Zero(F64());
    if (step.pivot >= 0) {
      pivot = hn::Set(F64(), columns[-1]);
      columns[-1] = static_cast<float>(columns[-1] * step.scale);
    }
    Doubles next = hn::Zero(F64());
    for (int k = 0; k < kVectors; ++k) {
      if (k >= vectors) break;
      const int first = k * kWideLanes;
      Doubles v = load_wide(columns + first, count - first);
      if (step.pivot >= 0) {
        v = hn::NegMulAdd(factors[k], pivot, v);
        store_wide(v, columns + first, count - first);
        v = hn::PromoteTo(F64(), hn::DemoteTo(HalfF32(), v));
      }
      if (k == 0) next = hn::Set(F64(), hn::GetLane(v));
      sums[k] = hn::MulAdd(next, v, sums[k]);
    }
  }
  for (int k = 0; k < vectors; ++k) hn::StoreU(sums[k], F64(), dots + k * kWideLanes);
}

void eliminate_kernel(float* left,  // (rows, rank)
                      int rank,
                      const Elimination& step,
                      int64_t begin,
                      int64_t end,
                      double* dots) {  // (kMaxLowRank)
  if (rank <= kWideLanes) return eliminate<1>(left, rank, step, begin, end, dots);
  eliminate<kMaxLowRank / kWideLanes>(left, rank, step, begin, end, dots);
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
HWY_EXPORT(eliminate_kernel);

namespace {

constexpr int64_t kStrip = 64;  // columns that one thread should at least have: four lines

// Rows that are summed one by one; what the parts come to is then added in their order.
constexpr int64_t kMostParts = 64;
constexpr int64_t kLeastPartRows = 256;

void check_rank(int rank) { LOCKSTEP_CHECK(rank >= 1 && rank <= kMaxLowRank, "rank = {}", rank); }

}  // namespace

void low_rank_left(const float* matrix,
                   const float* right,
                   const LowRankShape& shape,
                   float* left) {
  check_rank(shape.rank);
  const auto kernel = HWY_DYNAMIC_DISPATCH(left_kernel);
  parallel_for(shape.rows, grain_rows(shape.columns), [&](int64_t begin, int64_t end) {
    kernel(matrix, right, shape, left, begin, end);
  });
}

void low_rank_right(const float* matrix,
                    const float* left,
                    const LowRankShape& shape,
                    float* right) {
  check_rank(shape.rank);
  const auto kernel = HWY_DYNAMIC_DISPATCH(right_kernel);
  const int64_t strips = (shape.columns + kStrip - 1) / kStrip;
  parallel_for(strips, grain_rows(shape.rows * kStrip), [&](int64_t begin, int64_t end) {
    kernel(matrix, left, shape, right, begin * kStrip, std::min(end * kStrip, shape.columns));
  });
}

void low_rank_product(const float* left,
                      const float* right,
                      const LowRankShape& shape,
                      float* matrix) {
  check_rank(shape.rank);
  const auto kernel = HWY_DYNAMIC_DISPATCH(product_kernel);
  parallel_for(shape.rows, grain_rows(shape.columns), [&](int64_t begin, int64_t end) {
    kernel(left, right, shape, matrix, begin, end);
  });
}

void low_rank_subtract(float* matrix, const float* product, float factor, int64_t n) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(subtract_kernel);
  parallel_for(n, kGrainElements, [&](int64_t begin, int64_t end) {
    kernel(matrix + begin, product + begin, factor, end - begin);
  });
}

void fill_zero_columns(float* right, int64_t columns, int rank) {
  check_rank(rank);
  for (int k = 0; k < rank; ++k) {
    int64_t zeros = k;  // the first element of the column that is none
    while (zeros < columns * rank && right[zeros] == 0) zeros += rank;
    if (zeros < columns * rank) continue;
    for (int64_t i = k; i < columns * rank; i += rank) right[i] = low_rank_noise(i);
  }
}

// One pass over the rows for each column: it takes one pivot off and finds the products of the
// next.
void orthonormalize(float* left, int64_t rows, int rank) {
  check_rank(rank);
  const auto kernel = HWY_DYNAMIC_DISPATCH(eliminate_kernel);
  const int64_t part_rows = std::max(kLeastPartRows, (rows + kMostParts - 1) / kMostParts);
  const int64_t parts = (rows + part_rows - 1) / part_rows;
  double partial[kMostParts][kMaxLowRank];
  double taken[kMaxLowRank] = {};  // squares of what was taken off each column
  Elimination step;
  for (; step.pivot < rank; ++step.pivot) {
    parallel_for(parts, grain_rows(part_rows * rank), [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        const int64_t first = part * part_rows;
        kernel(left, rank, step, first, std::min(first + part_rows, rows), partial[part]);
      }
    });
    const int next = step.pivot + 1;
    if (next == rank) return;
    double dots[kMaxLowRank] = {};
    for (int64_t part = 0; part < parts; ++part) {
      for (int k = 0; k < rank - next; ++k) dots[k] += partial[part][k];
    }
    const bool nothing = is_next_to_nothing(dots[0], taken[next]);
    step.scale = nothing ? 0 : 1 / std::sqrt(dots[0]);
    for (int k = 1; k < rank - next; ++k) {
      const double factor = nothing ? 0 : dots[k] / dots[0];
      step.factors[k - 1] = factor;
      taken[next + k] += factor * dots[k];
    }
  }
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
