#pragma once
// The arithmetic of PowerSGD: matrix ~ left * right^T, with two thin factors (Vogels et al.,
// "PowerSGD: practical low-rank gradient compression for distributed optimization", 2019).

#include <cstdint>

#include "runtime/base/host_device.h"
#include "runtime/base/rng.h"

namespace lockstep::collectives {

inline constexpr int kMaxPowerSgdRank = 32;

// matrix is (rows, columns), left (rows, rank), right (columns, rank).
struct PowerSgdShape {
  int64_t rows = 0;
  int64_t columns = 0;
  int rank = 0;  // 1 to kMaxPowerSgdRank
};

// Element i of a factor's random start, in [-1, 1).
LOCKSTEP_HD float power_sgd_noise(int64_t i) {
  const RngStream stream = {.purpose = kRngPowerSgd};
  return 2 * uniform_from_word(philox_word(stream, static_cast<uint64_t>(i))) - 1;
}

// Whether a column is numerically zero once its components along the columns before it are
// subtracted. left_squares is the square of the norm that is left, taken_squares that of the
// subtracted components. A remainder of one part in ten thousand still has about two digits of a
// float that are not cancellation error. Never true if left_squares is NaN or infinite.
LOCKSTEP_HD bool is_next_to_nothing(double left_squares, double taken_squares) {
  constexpr double kMinSquareRatio = 1e-8;  // 1e-4, squared
  return left_squares == 0 || left_squares < kMinSquareRatio * (left_squares + taken_squares);
}

}  // namespace lockstep::collectives
