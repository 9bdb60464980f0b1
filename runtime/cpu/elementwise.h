#pragma once
// Sums and fills over flat fp32 arrays. All of them give the same bits for any number of threads.

#include <cstddef>
#include <cstdint>

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

// The sum of x^2 in double precision: 4096-element blocks, each in 16 lanes, then the blocks in
// order.
double sum_of_squares(const float* x,  // (n)
                      int64_t n,
                      double* workspace);  // sum_of_squares_workspace_bytes(n)
size_t sum_of_squares_workspace_bytes(int64_t n);

}  // namespace lockstep::cpu
