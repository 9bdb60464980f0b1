#pragma once
// What a sum over lanes adds, as it lies in memory and as it travels.

#include "runtime/base/dtype.h"

namespace lockstep {

// The terms of a balanced binary tree, ((0 + 1) + (2 + 3)) + ...: arrays of as many numbers each.
// Every term, and every partial sum that is added to another, is rounded to `wire` first (to the
// nearest, ties to even; kF32: not at all). So one level after the other gives the bits of all at
// once.
struct SumTerms {
  const void* const* arrays = nullptr;  // (count)
  int count = 1;                        // a power of two
  DType wire = DType::kF32;             // kF32, kBF16 or kF16
  bool travelled = false;               // arrays of `wire`, of what is rounded already; else floats
  bool round_sum = false;               // to `wire`, too
};

}  // namespace lockstep
