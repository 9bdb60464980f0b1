#pragma once
// The products of PowerSGD: see collectives/low_rank.h. The same bits for any number of threads;
// the matrix is read or written once.

#include <cstdint>

#include "collectives/low_rank.h"

namespace lockstep::cpu {

// left = matrix * right
void low_rank_left(const float* matrix,  // (rows, columns)
                   const float* right,   // (columns, rank)
                   const LowRankShape& shape,
                   float* left);  // (rows, rank)

// right = matrix^T * left. Takes 640 KiB of the caller's stack.
void low_rank_right(const float* matrix,  // (rows, columns)
                    const float* left,    // (rows, rank)
                    const LowRankShape& shape,
                    float* right);  // (columns, rank)

// Columns that are zeros become low_rank_noise().
void fill_zero_columns(float* right,  // (columns, rank)
                       int64_t columns,
                       int rank);

// matrix = left * right^T
void low_rank_product(const float* left,   // (rows, rank)
                      const float* right,  // (columns, rank)
                      const LowRankShape& shape,
                      float* matrix);  // (rows, columns)

// matrix -= factor * product, with one rounding.
void low_rank_subtract(float* matrix,         // (n)
                       const float* product,  // (n)
                       float factor,
                       int64_t n);

}  // namespace lockstep::cpu
