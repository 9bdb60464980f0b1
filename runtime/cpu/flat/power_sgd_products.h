#pragma once
// The matrix products of PowerSGD, as the interface that the reducers of gradients call.

#include "collectives/power_sgd/power_sgd_products.h"
#include "runtime/cpu/flat/orthonormalize.h"
#include "runtime/cpu/flat/power_sgd.h"

namespace lockstep::cpu {

class CpuPowerSgdProducts final : public collectives::PowerSgdProducts {
 public:
  void left(const float* matrix,
            const float* right,
            const collectives::PowerSgdShape& shape,
            float* left) override {
    power_sgd_left(matrix, right, shape, left);
  }
  void right(const float* matrix,
             const float* left,
             const collectives::PowerSgdShape& shape,
             float* right) override {
    power_sgd_right(matrix, left, shape, right);
  }
  void product(const float* left,
               const float* right,
               const collectives::PowerSgdShape& shape,
               float* matrix) override {
    power_sgd_product(left, right, shape, matrix);
  }
  void subtract(float* matrix, const float* product, float factor, int64_t n) override {
    power_sgd_subtract(matrix, product, factor, n);
  }
  void fill_zero_columns(float* right, int64_t columns, int rank) override {
    cpu::fill_zero_columns(right, columns, rank);
  }
  void orthonormalize(float* left, int64_t rows, int rank) override {
    cpu::orthonormalize(left, rows, rank);
  }
};

}  // namespace lockstep::cpu
