#pragma once
// What a sum over lanes adds, as it lies in memory and as it travels.

#include <cstdint>

#include "runtime/base/dtype.h"
#include "runtime/base/host_device.h"

namespace lockstep {

// Error feedback: of sums that are rounded, what the rounding took, kept in BF16 and added to the
// same sums when they are next made. Join m, of 1 .. count - 1, adds the terms [m - h, m)
// and [m, m + h), where h is the lowest bit of m. Borrowed.
struct ErrorFeedbackResiduals {
  uint16_t* first = nullptr;  // of join 1 or, where there is but one term, of that
  int64_t stride = 0;         // numbers from a join to the next

  explicit operator bool() const { return first != nullptr; }
  LOCKSTEP_HD uint16_t* of(int join) const { return first + (join - 1) * stride; }
};

// The terms of a balanced binary tree, ((0 + 1) + (2 + 3)) + ...: arrays of as many numbers each.
// Every term, and every partial sum that is added to another, is rounded to `wire` first (to the
// nearest, ties to even; kF32: not at all). So one level after the other gives the bits of all at
// once.
struct TreeSumTerms {
  const void* const* arrays = nullptr;  // (count)
  int count = 1;                        // a power of two
  DType wire = DType::kF32;             // kF32, kBF16 or kF16
  bool travelled = false;               // arrays of `wire`, of what is rounded already; else floats
  bool round_sum = false;               // to `wire`, too
  // With them, `wire` is kBF16, terms are added as they are, and every sum of two, or the only
  // term, takes up its residual and is rounded. One that is not finite leaves a residual of 0.
  ErrorFeedbackResiduals residuals = {};
  // Further arrays that receive the sum, on CPUs alone; each may be one of `arrays`.
  float* const* copies = nullptr;  // (copy_count)
  int copy_count = 0;
};

}  // namespace lockstep
