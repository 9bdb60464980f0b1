#pragma once
// What a backend computes for PowerSGD: products of a matrix (rows, columns) with its factors, left
// (rows, rank) and right (columns, rank). See power_sgd_math.h.

#include <cstdint>

#include "collectives/power_sgd/power_sgd_math.h"

namespace lockstep {

// Queued as SliceMath's work is, in one order with it. What is written overlaps nothing that is
// read.
class PowerSgdProducts {
 public:
  virtual ~PowerSgdProducts() = default;
  // left = matrix * right
  virtual void left(const float* matrix,
                    const float* right,
                    const PowerSgdShape& shape,
                    float* left) = 0;
  // right = matrix^T * left
  virtual void right(const float* matrix,
                     const float* left,
                     const PowerSgdShape& shape,
                     float* right) = 0;
  // matrix = left * right^T
  virtual void product(const float* left,
                       const float* right,
                       const PowerSgdShape& shape,
                       float* matrix) = 0;
  // matrix -= factor * product, n floats each.
  virtual void subtract(float* matrix, const float* product, float factor, int64_t n) = 0;
  // Columns of right (columns, rank) that are zeros become noise, the same everywhere.
  virtual void fill_zero_columns(float* right, int64_t columns, int rank) = 0;
  // Makes the columns of left (rows, rank) orthonormal, in order. One of which next to nothing is
  // left without its parts along those before it becomes zeros; what is not finite, NaN.
  virtual void orthonormalize(float* left, int64_t rows, int rank) = 0;
};

}  // namespace lockstep
