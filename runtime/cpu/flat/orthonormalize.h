#pragma once
// Gram-Schmidt on thin matrices, PowerSGD's factors.

#include <cstdint>

namespace lockstep::cpu {

// Makes the columns orthonormal, in order, by modified Gram-Schmidt. Those of which next to nothing
// is left then become zeros (see collectives/power_sgd/power_sgd_math.h). NaN and infinity become
// NaN, there and in the columns after. The same bits for any number of threads.
void orthonormalize(float* left,  // (rows, rank)
                    int64_t rows,
                    int rank);

}  // namespace lockstep::cpu
