#pragma once
// Tree sums over lanes, and packing to the wire types. The bits do not depend on the number of
// threads.

#include <cstddef>
#include <cstdint>

#include "collectives/layout/tree_sum_terms.h"

namespace lockstep::cpu {

// out = the sum of the terms, n numbers each. `out` may be one of the arrays if they are floats.
void tree_sum(const collectives::TreeSumTerms& terms,
              float* out,  // (n)
              int64_t n);

// to = from, rounded to `wire`: kBF16 or kF16.
void pack(const float* from,  // (n)
          DType wire,
          std::byte* to,  // (n) of `wire`
          int64_t n);

}  // namespace lockstep::cpu
