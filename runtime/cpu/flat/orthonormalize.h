#pragma once
// Gram-Schmidt on thin matrices: PowerSGD's factors.

#include <cstdint>

namespace lockstep::cpu {

// Makes the columns orthonormal, in order, by modified Gram-Schmidt. A column that is nearly a
// linear combination of the columns before it becomes zeros (is_next_to_nothing() of
// collectives/power_sgd/power_sgd_math.h). NaN and infinity become NaN, and so do all columns after
// theirs. The bits do not depend on the number of threads.
void orthonormalize(float* left,  // (rows, rank)
                    int64_t rows,
                    int rank);

}  // namespace lockstep::cpu
