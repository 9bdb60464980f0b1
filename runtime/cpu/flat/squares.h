#pragma once
// Exact sums of squares.

#include <cstdint>

#include "runtime/base/exact_sum.h"

namespace lockstep::cpu {

// *sum += x^2, in chunks from the first element on: see exact_sum.h. The same bits for any number of
// threads.
void add_squares(const float* x,  // (n)
                 int64_t n,
                 ExactSum* sum);

}  // namespace lockstep::cpu
