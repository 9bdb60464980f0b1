#pragma once
// Tree sums over lanes, and packing to the wire types: the same bits as
// runtime/cpu/flat/tree_sum.h.

#include <cstddef>
#include <cstdint>

#include "collectives/layout/tree_sum_terms.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Max terms of a sum.
inline constexpr int kMaxTerms = 64;

// out = the sum of the terms, n numbers each in device memory; the list of the arrays is in host
// memory. `out` may be one of the arrays if they are floats.
void tree_sum(const collectives::TreeSumTerms& terms,
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
