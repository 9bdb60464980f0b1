#pragma once
// The Newton-Schulz iterations of Muon, which bring all singular values of a matrix close to 1 and
// keep its singular vectors:
//
//   X <- X / max(||X||, 1e-7)                           the Frobenius norm
//   X <- (a I + b A + c A A) X,  where A = X X^T         `iterations` times
//
// A matrix with more rows than columns is transposed: X <- X (a I + b A + c A A), A = X^T X.

#include <algorithm>
#include <cstdint>

namespace lockstep::exec {

struct NewtonSchulz {
  int64_t rows = 0, columns = 0;
  int iterations = 5;
  float scale = 1;  // multiplies the result

  // The order of A.
  int64_t order() const { return std::min(rows, columns); }
  int64_t elements() const { return rows * columns; }
  bool tall() const { return rows > columns; }
  // Floating-point operations of all products.
  int64_t flops() const { return 2 * iterations * order() * (2 * elements() + order() * order()); }
};

// Jordan's quintic polynomial, steep at 0.
inline constexpr float kNewtonSchulzA = 3.4445f, kNewtonSchulzB = -4.7750f,
                       kNewtonSchulzC = 2.0315f;
inline constexpr double kNewtonSchulzLeastNorm = 1e-7;

}  // namespace lockstep::exec
