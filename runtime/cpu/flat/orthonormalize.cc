#include "runtime/cpu/flat/orthonormalize.h"

#include <cmath>

#include "collectives/power_sgd/power_sgd_math.h"
#include "runtime/base/error.h"
#include "runtime/cpu/row_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/flat/orthonormalize.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

#ifndef LOCKSTEP_RUNTIME_CPU_ORTHONORMALIZE_CC
#define LOCKSTEP_RUNTIME_CPU_ORTHONORMALIZE_CC
namespace lockstep::cpu {

// How one column, the pivot, is applied once its products with itself and with the columns after it
// are known.
struct Elimination {
  int pivot = -1;                                      // -1: none yet
  double scale = 0;                                    // scales the pivot to norm 1
  double factors[collectives::kMaxPowerSgdRank] = {};  // of the pivot in each column after it
};

}  // namespace lockstep::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

using F64 = hn::ScalableTag<double>;
using Doubles = hn::Vec<F64>;
using HalfF32 = hn::Rebind<float, F64>;
constexpr int kWideLanes = HWY_LANES(double);

// Loads the first `count` floats of a row, at most a vector of doubles.
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

// State for the `count` columns after the pivot, in kVectors vectors.
template <int kVectors>
struct After {
  Doubles sums[kVectors], factors[kVectors];
  int count, vectors;

  After(const Elimination& step, int rank)
      : count(rank - step.pivot - 1), vectors((count + kWideLanes - 1) / kWideLanes) {
    for (int k = 0; k < kVectors; ++k) {
      sums[k] = hn::Zero(F64());
      factors[k] = k < vectors ? hn::LoadU(F64(), step.factors + k * kWideLanes) : sums[k];
    }
  }

  // Subtracts the pivot in kRows rows and adds up the products. All rows are read before any is
  // written: otherwise the next row would wait for the vector just written, which overlaps it.
  template <int kRows>
  HWY_INLINE void rows(float* left, int rank, const Elimination& step) {
    float* const columns = left + step.pivot + 1;
    const bool first_pass = step.pivot < 0;
    Doubles v[kRows][kVectors];
    float pivots[kRows];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      pivots[row] = first_pass ? 0.0f : columns[row * rank - 1];
      for (int k = 0; k < kVectors && k < vectors; ++k)
        v[row][k] = load_wide(columns + row * rank + k * kWideLanes, count - k * kWideLanes);
    }
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      float* const to = columns + row * rank;
      if (!first_pass) to[-1] = static_cast<float>(pivots[row] * step.scale);
      Doubles next = hn::Zero(F64());
      for (int k = 0; k < kVectors && k < vectors; ++k) {
        if (!first_pass) {
          const Doubles rest = hn::NegMulAdd(factors[k], hn::Set(F64(), pivots[row]), v[row][k]);
          store_wide(rest, to + k * kWideLanes, count - k * kWideLanes);
          v[row][k] = hn::PromoteTo(F64(), hn::DemoteTo(HalfF32(), rest));
        }
        if (k == 0) next = hn::Set(F64(), hn::GetLane(v[row][0]));
        sums[k] = hn::MulAdd(next, v[row][k], sums[k]);
      }
    }
  }
};

template <int kVectors, int kRows>
HWY_INLINE void eliminate(
    float* left, int rank, const Elimination& step, int64_t begin, int64_t end, double* dots) {
  After<kVectors> after(step, rank);
  int64_t row = begin;
  for (; row + kRows <= end; row += kRows)
    after.template rows<kRows>(left + row * rank, rank, step);
  for (; row < end; ++row) after.template rows<1>(left + row * rank, rank, step);
  for (int k = 0; k < after.vectors; ++k) hn::StoreU(after.sums[k], F64(), dots + k * kWideLanes);
}

// Subtracts the pivot from the columns after it and scales it to norm 1. dots = the products of the
// next pivot with itself and with each column after it, over these rows.
void eliminate_kernel(float* left,  // (rows, rank)
                      int rank,
                      const Elimination& step,
                      int64_t begin,
                      int64_t end,
                      double* dots) {  // (kMaxPowerSgdRank)
  if (rank <= kWideLanes) return eliminate<1, 8>(left, rank, step, begin, end, dots);
  eliminate<collectives::kMaxPowerSgdRank / kWideLanes, 1>(left, rank, step, begin, end, dots);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(eliminate_kernel);

// One pass over the rows for each column: it subtracts one pivot and computes the products of the
// next.
void orthonormalize(float* left, int64_t rows, int rank) {
  LOCKSTEP_CHECK(rank >= 1 && rank <= collectives::kMaxPowerSgdRank, "rank = {}", rank);
  const auto kernel = HWY_DYNAMIC_DISPATCH(eliminate_kernel);
  constexpr int64_t kMaxParts = 64, kMinRows = 256;
  const RowParts parts(rows, kMaxParts, kMinRows);
  double partial[kMaxParts][collectives::kMaxPowerSgdRank];
  double taken[collectives::kMaxPowerSgdRank] =
      {};  // squares of what was subtracted from each column
  Elimination step;
  for (; step.pivot < rank; ++step.pivot) {
    for_each_part(parts, rank, [&](int64_t part, int64_t begin, int64_t end) {
      kernel(left, rank, step, begin, end, partial[part]);
    });
    const int next = step.pivot + 1;
    if (next == rank) return;
    double dots[collectives::kMaxPowerSgdRank] = {};
    for (int64_t part = 0; part < parts.count; ++part) {
      for (int k = 0; k < rank - next; ++k) dots[k] += partial[part][k];
    }
    const bool nothing = collectives::is_next_to_nothing(dots[0], taken[next]);
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
