#pragma once
// Exact sums of squares, and bit checksums.

#include <cstdint>

#include "runtime/base/exact_sum.h"

namespace lockstep::cpu {

// *sum += x^2, in chunks from the first element on: see exact_sum.h. The bits do not depend on the
// number of threads.
void add_squares(const float* x,  // (n)
                 int64_t n,
                 ExactSum* sum,
                 uint32_t* bits = nullptr);  // += the bit checksum, unless null

// The bit checksum of n elements (runtime/base/bit_checksum.h).
uint32_t bit_checksum(const float* x, int64_t n);
uint32_t bit_checksum(const uint16_t* x, int64_t n);

}  // namespace lockstep::cpu
