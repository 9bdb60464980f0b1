#pragma once
// The products that a backend computes for PowerSGD. matrix is (rows, columns), left (rows, rank),
// right (columns, rank); see power_sgd_math.h.

#include <cstdint>

#include "collectives/power_sgd/power_sgd_math.h"

namespace lockstep::collectives {

// Calls are queued in one order with those of SliceMath. Outputs must not overlap inputs.
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
  // Fills the columns of right (columns, rank) that are all 0 with noise, the same on every rank.
  virtual void fill_zero_columns(float* right, int64_t columns, int rank) = 0;
  // Makes the columns of left (rows, rank) orthonormal, in order. A column becomes zeros if it
  // is_next_to_nothing() after its components along earlier columns are subtracted, and NaN if it
  // is not finite.
  virtual void orthonormalize(float* left, int64_t rows, int rank) = 0;
};

}  // namespace lockstep::collectives
