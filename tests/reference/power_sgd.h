#pragma once
// The arithmetic of PowerSGD in double precision.

#include <cmath>
#include <cstdint>
#include <vector>

#include "collectives/power_sgd/power_sgd_math.h"

namespace lockstep::test {

// (rows, rank) = matrix * right
inline std::vector<double> power_sgd_left(const std::vector<double>& matrix,
                                          const std::vector<double>& right,
                                          const collectives::PowerSgdShape& shape) {
  std::vector<double> left(static_cast<size_t>(shape.rows * shape.rank));
  for (int64_t i = 0; i < shape.rows; ++i) {
    for (int64_t j = 0; j < shape.columns; ++j) {
      for (int k = 0; k < shape.rank; ++k)
        left[i * shape.rank + k] += matrix[i * shape.columns + j] * right[j * shape.rank + k];
    }
  }
  return left;
}

// (columns, rank) = matrix^T * left
inline std::vector<double> power_sgd_right(const std::vector<double>& matrix,
                                           const std::vector<double>& left,
                                           const collectives::PowerSgdShape& shape) {
  std::vector<double> right(static_cast<size_t>(shape.columns * shape.rank));
  for (int64_t i = 0; i < shape.rows; ++i) {
    for (int64_t j = 0; j < shape.columns; ++j) {
      for (int k = 0; k < shape.rank; ++k)
        right[j * shape.rank + k] += matrix[i * shape.columns + j] * left[i * shape.rank + k];
    }
  }
  return right;
}

// (rows, columns) = left * right^T
inline std::vector<double> power_sgd_product(const std::vector<double>& left,
                                             const std::vector<double>& right,
                                             const collectives::PowerSgdShape& shape) {
  std::vector<double> matrix(static_cast<size_t>(shape.rows * shape.columns));
  for (int64_t i = 0; i < shape.rows; ++i) {
    for (int64_t j = 0; j < shape.columns; ++j) {
      for (int k = 0; k < shape.rank; ++k)
        matrix[i * shape.columns + j] += left[i * shape.rank + k] * right[j * shape.rank + k];
    }
  }
  return matrix;
}

// The same for magnitudes: what the rounding of such a sum is relative to.
inline std::vector<double> magnitudes(std::vector<double> x) {
  for (double& value : x) value = std::abs(value);
  return x;
}

// The columns of (rows, rank), orthonormal by modified Gram-Schmidt.
inline std::vector<double> orthonormal(std::vector<double> left, int rank) {
  const size_t stride = static_cast<size_t>(rank), rows = left.size() / stride;
  const auto product = [&](size_t a, size_t b) {
    double sum = 0;
    for (size_t i = 0; i < rows; ++i) sum += left[i * stride + a] * left[i * stride + b];
    return sum;
  };
  std::vector<double> whole(stride);
  for (size_t k = 0; k < stride; ++k) whole[k] = product(k, k);
  for (size_t k = 0; k < stride; ++k) {
    const double squares = product(k, k);
    const bool nothing = collectives::is_next_to_nothing(squares, whole[k] - squares);
    for (size_t i = 0; i < rows; ++i) {
      double& x = left[i * stride + k];
      x = nothing ? 0 : x / std::sqrt(squares);
    }
    for (size_t l = k + 1; l < stride; ++l) {
      const double factor = product(k, l);
      for (size_t i = 0; i < rows; ++i) left[i * stride + l] -= factor * left[i * stride + k];
    }
  }
  return left;
}

}  // namespace lockstep::test
