#pragma once
// The matrix products of PowerSGD, as the interface that the reducers of gradients call.

#include "collectives/power_sgd/power_sgd_products.h"
#include "runtime/cuda/flat/orthonormalize.h"
#include "runtime/cuda/flat/power_sgd.h"

namespace lockstep::cuda {

class CudaPowerSgdProducts final : public collectives::PowerSgdProducts {
 public:
  // Queues all work on `stream`.
  explicit CudaPowerSgdProducts(Stream stream) : stream_(stream) {}

  void left(const float* matrix,
            const float* right,
            const collectives::PowerSgdShape& shape,
            float* left) override {
    power_sgd_left(matrix, right, shape, left, stream_);
  }
  void right(const float* matrix,
             const float* left,
             const collectives::PowerSgdShape& shape,
             float* right) override {
    power_sgd_right(matrix, left, shape, right, stream_);
  }
  void product(const float* left,
               const float* right,
               const collectives::PowerSgdShape& shape,
               float* matrix) override {
    power_sgd_product(left, right, shape, matrix, stream_);
  }
  void subtract(float* matrix, const float* product, float factor, int64_t n) override {
    power_sgd_subtract(matrix, product, factor, n, stream_);
  }
  void fill_zero_columns(float* right, int64_t columns, int rank) override {
    cuda::fill_zero_columns(right, columns, rank, stream_);
  }
  void orthonormalize(float* left, int64_t rows, int rank) override {
    cuda::orthonormalize(left, rows, rank, stream_);
  }

 private:
  Stream stream_;
};

}  // namespace lockstep::cuda
