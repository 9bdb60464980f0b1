#pragma once
// The products of PowerSGD: see collectives/power_sgd/power_sgd_math.h. The same bits for any
// number of threads; the matrix is read or written once.

#include <cstdint>

#include "collectives/power_sgd/power_sgd_math.h"

namespace lockstep::cpu {

// left = matrix * right
void power_sgd_left(const float* matrix,  // (rows, columns)
                    const float* right,   // (columns, rank)
                    const PowerSgdShape& shape,
                    float* left);  // (rows, rank)

// right = matrix^T * left. Takes 640 KiB of the caller's stack.
void power_sgd_right(const float* matrix,  // (rows, columns)
                     const float* left,    // (rows, rank)
                     const PowerSgdShape& shape,
                     float* right);  // (columns, rank)

// Columns that are zeros become power_sgd_noise().
void fill_zero_columns(float* right,  // (columns, rank)
                       int64_t columns,
                       int rank);

// matrix = left * right^T
void power_sgd_product(const float* left,   // (rows, rank)
                       const float* right,  // (columns, rank)
                       const PowerSgdShape& shape,
                       float* matrix);  // (rows, columns)

// matrix -= factor * product, with one rounding.
void power_sgd_subtract(float* matrix,         // (n)
                        const float* product,  // (n)
                        float factor,
                        int64_t n);

}  // namespace lockstep::cpu
