#pragma once
// Sums over lanes, and what travels of them: the bits of runtime/cpu/flat/tree_sum.h.

#include <cstddef>
#include <cstdint>

#include "collectives/reduce/tree_sum_terms.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Terms that a sum can have.
inline constexpr int kMostTerms = 64;

// out = the sum of the terms, of n numbers each in memory of the device; the list of the arrays is
// on the host. out may be one of the arrays, where they are floats.
void tree_sum(const TreeSumTerms& terms,
              float* out,  // (n)
              int64_t n,
              Stream stream);

// to = from, rounded to `wire`: kBF16 or kF16.
void pack(const float* from,  // (n)
          DType wire,
          std::byte* to,  // (n) of `wire`
          int64_t n,
          Stream stream);

}  // namespace lockstep::cuda
