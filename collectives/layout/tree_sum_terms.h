#pragma once
// The terms of a sum over lanes, in memory or as received.

#include <algorithm>
#include <bit>
#include <cstdint>

#include "runtime/base/dtype.h"
#include "runtime/base/host_device.h"

namespace lockstep::collectives {

// Error feedback: what rounding took from each sum, kept in BF16 and added to the same sum of the
// next step. Join m, from 1 to count - 1, adds two sums of terms, of which the right one begins
// with term m. Borrowed.
struct ErrorFeedbackResiduals {
  uint16_t* first = nullptr;  // of join 1; if there is only one term, of that
  int64_t stride = 0;         // elements from a join to the next

  explicit operator bool() const { return first != nullptr; }
  LOCKSTEP_HD uint16_t* of(int join) const { return first + (join - 1) * stride; }
};

// Limit of the sums that wait for a right one while a tree of up to 4,096 lanes is added up.
inline constexpr int kMaxOpenSums = 16;

// The terms of a binary tree: arrays of equal length. Every term, and every partial sum that is
// added to another one, is rounded to `wire` first (to nearest, ties to even; kF32: not rounded).
// So summing one level after the other gives the same bits as summing all at once.
struct TreeSumTerms {
  const void* const* arrays = nullptr;  // (count)
  int count = 1;
  DType wire = DType::kF32;  // kF32, kBF16 or kF16
  bool travelled = false;    // arrays of `wire`, rounded already; otherwise floats
  bool round_sum = false;    // round the sum to `wire` too
  // (count) The tree: after each term, how many times the last two sums are added, as in
  // JoinedTerms. Null: ((0 + 1) + (2 + 3)) + ..., and `count` is a power of two.
  const uint8_t* joins = nullptr;
  // If set, `wire` is kBF16 and terms are added unrounded. Every sum of two, or the only term, adds
  // its residual and is rounded. A sum that is not finite leaves a residual of 0.
  ErrorFeedbackResiduals residuals = {};
  // Further arrays that receive the sum, on CPUs only; each may be one of `arrays`.
  float* const* copies = nullptr;  // (copy_count)
  int copy_count = 0;
};

// How many of the first terms wait for the sum of all the others, to which they are added one after
// the other, the last of them first: two in 0 + (1 + ((2 + 3) + (4 + 5))).
inline int chained_terms(const TreeSumTerms& terms) {
  if (terms.joins == nullptr) return 0;
  int chained = terms.count - 2;
  int open = 0;  // sums, after a term
  for (int i = 0; i + 1 < terms.count; ++i) {
    open += 1 - terms.joins[i];
    if (terms.joins[i] > 0) chained = std::min(chained, open - 1);
  }
  return std::max(chained, 0);
}
// Whether the other terms are 2^k and join as a balanced tree.
inline bool is_balanced_behind(const TreeSumTerms& terms, int chained) {
  const int count = terms.count - chained;
  if (!std::has_single_bit(static_cast<unsigned>(count))) return false;
  for (int i = 0; i < count; ++i) {
    const int more = i + 1 < count ? 0 : chained;
    if (terms.joins[chained + i] != std::countr_one(static_cast<unsigned>(i)) + more) return false;
  }
  return true;
}

}  // namespace lockstep::collectives
