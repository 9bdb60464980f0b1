#pragma once
// The matrix products of PowerSGD: see collectives/power_sgd/power_sgd_math.h. The bits are the
// same every time, because the order of the sums depends on the shape alone. No scratch memory.

#include <cstdint>

#include "collectives/power_sgd/power_sgd_math.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// left = matrix * right. Up to rank 8, the matrix is read once. For higher ranks, it is read again,
// from the caches, for each 8 columns.
void power_sgd_left(const float* matrix,  // (rows, columns)
                    const float* right,   // (columns, rank)
                    const collectives::PowerSgdShape& shape,
                    float* left,  // (rows, rank)
                    Stream stream);

// right = matrix^T * left, in the same way.
void power_sgd_right(const float* matrix,  // (rows, columns)
                     const float* left,    // (rows, rank)
                     const collectives::PowerSgdShape& shape,
                     float* right,  // (columns, rank)
                     Stream stream);

// Replaces columns that are all zeros by power_sgd_noise().
void fill_zero_columns(float* right,  // (columns, rank)
                       int64_t columns,
                       int rank,
                       Stream stream);

// matrix = left * right^T
void power_sgd_product(const float* left,   // (rows, rank)
                       const float* right,  // (columns, rank)
                       const collectives::PowerSgdShape& shape,
                       float* matrix,  // (rows, columns)
                       Stream stream);

// matrix -= factor * product
void power_sgd_subtract(float* matrix,         // (n)
                        const float* product,  // (n)
                        float factor,
                        int64_t n,
                        Stream stream);

}  // namespace lockstep::cuda
