#pragma once
// Sums over lanes, and what travels of them. The same bits for any number of threads.

#include <cstddef>
#include <cstdint>

#include "collectives/reduce/tree_sum_terms.h"

namespace lockstep::cpu {

// out = the sum of the terms, of n numbers each. out may be one of the arrays, where they are
// floats.
void tree_sum(const TreeSumTerms& terms,
              float* out,  // (n)
              int64_t n);

// to = from, rounded to `wire`: kBF16 or kF16.
void pack(const float* from,  // (n)
          DType wire,
          std::byte* to,  // (n) of `wire`
          int64_t n);

}  // namespace lockstep::cpu
