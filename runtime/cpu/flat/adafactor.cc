#include "runtime/cpu/flat/adafactor.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/flat/adafactor.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

using F64 = hn::ScalableTag<double>;
using I64 = hn::RebindToSigned<F64>;
using Narrow = hn::Rebind<float, F64>;
using Integers = hn::Vec<I64>;

// exec::fixed_square() of a vector of gradients.
struct Squares {
  Integers high, low;
  Squares(const float* g, const exec::FactoredStep& step) {
    const F64 d;
    const auto round = hn::Set(d, exec::kRoundToInteger);
    const auto integer_of = [&](auto rounded) HWY_ATTR {
      return hn::Sub(hn::BitCast(I64(), rounded), hn::BitCast(I64(), round));
    };
    const auto scaled = hn::Mul(hn::LoadU(Narrow(), g), hn::Set(Narrow(), step.grad_scale));
    const auto wide = hn::PromoteTo(d, scaled);
    const auto x = hn::Mul(hn::Mul(wide, wide), hn::Set(d, step.units));
    const auto rounded = hn::Add(x, round);
    const auto rest = hn::Sub(x, hn::Sub(rounded, round));
    high = integer_of(rounded);
    low = integer_of(hn::Add(hn::Mul(rest, hn::Set(d, exec::kLowPerHigh)), round));
  }
};

HWY_INLINE void add_to(int64_t* sums, Integers values) {
  const I64 d;
  hn::StoreU(hn::Add(hn::LoadU(d, sums), values), d, sums);
}

HWY_INLINE int64_t sum_of(Integers values) {
  HWY_ALIGN int64_t lanes[HWY_LANES(int64_t)];
  hn::Store(values, I64(), lanes);
  int64_t sum = 0;
  for (const int64_t lane : lanes) sum += lane;
  return sum;
}

// n gradients of one row: adds their squares to the row's sum and to those of n columns.
void add_row_kernel(const float* g,
                    int64_t n,
                    const exec::FactoredStep& step,
                    int64_t* row_high,
                    int64_t* row_low,
                    int64_t* high,
                    int64_t* low) {
  constexpr int64_t kLanes = HWY_LANES(double);
  Integers high_sum = hn::Zero(I64()), low_sum = high_sum;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Squares squares(g + i, step);
    add_to(high + i, squares.high);
    add_to(low + i, squares.low);
    high_sum = hn::Add(high_sum, squares.high);
    low_sum = hn::Add(low_sum, squares.low);
  }
  *row_high += sum_of(high_sum);
  *row_low += sum_of(low_sum);
  for (; i < n; ++i) {
    const exec::FixedPoint square = exec::fixed_square(g[i] * step.grad_scale, step.units);
    high[i] += square.high;
    low[i] += square.low;
    *row_high += square.high;
    *row_low += square.low;
  }
}

// n gradients at one place of n matrices: adds each square to a row's sum and to a column's.
void add_channels_kernel(const float* g,
                         int64_t n,
                         const exec::FactoredStep& step,
                         int64_t* row_high,
                         int64_t* row_low,
                         int64_t* high,
                         int64_t* low) {
  constexpr int64_t kLanes = HWY_LANES(double);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Squares squares(g + i, step);
    add_to(high + i, squares.high);
    add_to(low + i, squares.low);
    add_to(row_high + i, squares.high);
    add_to(row_low + i, squares.low);
  }
  for (; i < n; ++i) {
    const exec::FixedPoint square = exec::fixed_square(g[i] * step.grad_scale, step.units);
    high[i] += square.high;
    low[i] += square.low;
    row_high[i] += square.high;
    row_low[i] += square.low;
  }
}

// n gradients of one row or, with kChannels, at one place of n matrices. A plain loop, which the
// compiler vectorises.
template <bool kChannels>
HWY_INLINE void directions(float* HWY_RESTRICT g,
                           int64_t n,
                           const exec::FactoredStep& step,
                           const float* HWY_RESTRICT rows,
                           const float* HWY_RESTRICT columns) {
  const exec::FactoredStep s = step;
  const float row = rows[0];
  for (int64_t i = 0; i < n; ++i)
    g[i] = exec::factored_direction(g[i], kChannels ? rows[i] : row, columns[i], s);
}

void directions_kernel(float* g,
                       int64_t n,
                       const exec::FactoredStep& step,
                       bool channels,
                       const float* rows,
                       const float* columns) {
  if (channels) return directions<true>(g, n, step, rows, columns);
  directions<false>(g, n, step, rows, columns);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(add_row_kernel);
HWY_EXPORT(add_channels_kernel);
HWY_EXPORT(directions_kernel);

namespace {

// Columns whose sums a thread keeps to itself at a time.
constexpr int64_t kTile = 1024;

// Contiguous elements of a piece: `elements` of them from `first` on, which belong to one row, or
// to one place in several matrices. The indices are those of their first row and column.
struct Run {
  int64_t first, elements;
  int64_t row, column;
};

// Calls f(run) for the runs of elements [begin, end), one after the other.
template <typename F>
void for_each_run(const FactoredShape& shape, int64_t begin, int64_t end, F f) {
  const bool channels = shape.inner > 1;
  const int64_t length = channels ? shape.inner : shape.columns;
  for (int64_t first = begin; first < end;) {
    const int64_t number = first / length, at = first % length;
    const int64_t elements = std::min(length - at, end - first);
    Run run = {first, elements, number, at};
    if (channels) {
      const int64_t row = number / shape.columns, column = number % shape.columns;
      run.row = row * shape.inner + at;
      run.column = (row / shape.rows * shape.columns + column) * shape.inner + at;
    } else {
      run.column += number / shape.rows * shape.columns;
    }
    f(run);
    first += elements;
  }
}

// Calls f(begin, end) for parts of the piece that end at multiples of `unit` elements.
template <typename F>
void in_units(const exec::FactoredPiece& piece, int64_t unit, F f) {
  const int64_t end = piece.first + piece.elements, first = piece.first / unit;
  const int64_t units = (end + unit - 1) / unit - first;
  parallel_for(units, std::max<int64_t>(1, kGrainElements / unit), [&](int64_t from, int64_t to) {
    f(std::max(piece.first, (first + from) * unit), std::min(end, (first + to) * unit));
  });
}

// Each thread takes whole rows. It adds up a tile of columns at a time.
void add_rows_of(const exec::FactoredPiece& piece, const exec::FactoredStep& step) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(add_row_kernel);
  const FactoredShape& shape = piece.shape;
  int64_t* const high = piece.high + shape.all_rows();
  int64_t* const low = piece.low + shape.all_rows();
  in_units(piece, shape.columns, [&](int64_t begin, int64_t end) {
    int64_t tile_high[kTile], tile_low[kTile];
    const int64_t matrix = shape.rows * shape.columns;
    for (int64_t first = begin, last = 0; first < end; first = last) {  // matrix by matrix
      last = std::min(end, (first / matrix + 1) * matrix);
      const int64_t first_column = first / matrix * shape.columns;
      for (int64_t tile = 0; tile < shape.columns; tile += kTile) {
        const int64_t width = std::min(kTile, shape.columns - tile);
        std::fill_n(tile_high, width, 0);
        std::fill_n(tile_low, width, 0);
        for_each_run(shape, first, last, [&](const Run& run) {
          const int64_t at = run.column - first_column;
          const int64_t from = std::max(at, tile), to = std::min(at + run.elements, tile + width);
          if (from >= to) return;
          kernel(piece.gradients + run.first - piece.first + from - at,
                 to - from,
                 step,
                 piece.high + run.row,
                 piece.low + run.row,
                 tile_high + from - tile,
                 tile_low + from - tile);
        });
        for (int64_t i = 0; i < width; ++i) {
          const auto column = first_column + tile + i;
          std::atomic_ref(high[column]).fetch_add(tile_high[i], std::memory_order_relaxed);
          std::atomic_ref(low[column]).fetch_add(tile_low[i], std::memory_order_relaxed);
        }
      }
    }
  });
}

// Each thread takes whole outputs of a convolution, whose sums it shares with no other.
void add_channels_of(const exec::FactoredPiece& piece, const exec::FactoredStep& step) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(add_channels_kernel);
  const FactoredShape& shape = piece.shape;
  const int64_t rows = shape.all_rows();
  in_units(piece, shape.elements() / shape.batch, [&](int64_t begin, int64_t end) {
    for_each_run(shape, begin, end, [&](const Run& run) {
      kernel(piece.gradients + run.first - piece.first,
             run.elements,
             step,
             piece.high + run.row,
             piece.low + run.row,
             piece.high + rows + run.column,
             piece.low + rows + run.column);
    });
  });
}

}  // namespace

void add_factored_squares(const exec::FactoredPiece& piece, const exec::FactoredStep& step) {
  piece.shape.inner > 1 ? add_channels_of(piece, step) : add_rows_of(piece, step);
}

void factored_directions(const exec::FactoredPiece& piece, const exec::FactoredStep& step) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(directions_kernel);
  parallel_for(piece.elements, kGrainElements, [&](int64_t begin, int64_t end) {
    for_each_run(piece.shape, piece.first + begin, piece.first + end, [&](const Run& run) {
      kernel(piece.gradients + run.first - piece.first,
             run.elements,
             step,
             piece.shape.inner > 1,
             piece.factors + run.row,
             piece.factors + piece.shape.all_rows() + run.column);
    });
  });
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
