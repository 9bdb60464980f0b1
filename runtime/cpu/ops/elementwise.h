#pragma once
// Sums and fills over flat fp32 arrays. All of them give the same bits for any number of threads.

#include <cstdint>

#include "runtime/base/exact_sum.h"

namespace lockstep::cpu {

// out = a + b. out may be a or b.
void add(const float* a,  // (n)
         const float* b,  // (n)
         float* out,      // (n)
         int64_t n);

// to += from.
void accumulate(const float* from,  // (n)
                float* to,          // (n)
                int64_t n);

// x *= factor.
void scale(float* x,  // (n)
           float factor,
           int64_t n);

// x = value.
void fill(float* x,  // (n)
          float value,
          int64_t n);

// *sum += x^2, in chunks from the first element on: see exact_sum.h.
void add_squares(const float* x,  // (n)
                 int64_t n,
                 ExactSum* sum);

}  // namespace lockstep::cpu
