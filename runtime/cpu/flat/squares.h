#pragma once
// Exact sums of squares, and sums of bits.

#include <cstdint>

#include "runtime/base/exact_sum.h"

namespace lockstep::cpu {

// *sum += x^2, in chunks from the first element on: see exact_sum.h. The same bits for any number of
// threads.
void add_squares(const float* x,  // (n)
                 int64_t n,
                 ExactSum* sum,
                 uint32_t* bits = nullptr);  // += the sum of their bits, unless null

// The sum of the bits of n elements (runtime/base/bit_sum.h).
uint32_t bit_sum(const float* x, int64_t n);
uint32_t bit_sum(const uint16_t* x, int64_t n);

}  // namespace lockstep::cpu
