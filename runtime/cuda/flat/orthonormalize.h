#pragma once
// Gram-Schmidt on thin matrices, PowerSGD's factors.

#include <cstdint>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Makes the columns orthonormal, in order, by modified Gram-Schmidt. Those of which next to nothing
// is left then become zeros (see collectives/power_sgd/power_sgd_math.h). NaN and infinity become
// NaN, there and in the columns after. The same bits every time; no scratch memory.
void orthonormalize(float* left,  // (rows, rank)
                    int64_t rows,
                    int rank,
                    Stream stream);

}  // namespace lockstep::cuda
