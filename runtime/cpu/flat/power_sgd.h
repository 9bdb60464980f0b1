#pragma once
// The matrix products of PowerSGD: see collectives/power_sgd/power_sgd_math.h. The bits do not
// depend on the number of threads. The matrix is read or written once.

#include <cstdint>

#include "collectives/power_sgd/power_sgd_math.h"

namespace lockstep::cpu {

// left = matrix * right
void power_sgd_left(const float* matrix,  // (rows, columns)
                    const float* right,   // (columns, rank)
                    const collectives::PowerSgdShape& shape,
                    float* left);  // (rows, rank)

// right = matrix^T * left. Uses 640 KiB of the caller's stack.
void power_sgd_right(const float* matrix,  // (rows, columns)
                     const float* left,    // (rows, rank)
                     const collectives::PowerSgdShape& shape,
                     float* right);  // (columns, rank)

// Replaces columns that are all zeros by power_sgd_noise().
void fill_zero_columns(float* right,  // (columns, rank)
                       int64_t columns,
                       int rank);

// matrix = left * right^T
void power_sgd_product(const float* left,   // (rows, rank)
                       const float* right,  // (columns, rank)
                       const collectives::PowerSgdShape& shape,
                       float* matrix);  // (rows, columns)

// matrix -= factor * product, with one rounding.
void power_sgd_subtract(float* matrix,         // (n)
                        const float* product,  // (n)
                        float factor,
                        int64_t n);

}  // namespace lockstep::cpu
