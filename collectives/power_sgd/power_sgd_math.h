#pragma once
// A matrix by way of two thin ones: matrix ~ left * right^T. What PowerSGD computes with (Vogels et
// al., "PowerSGD: practical low-rank gradient compression for distributed optimization", 2019).

#include <cstdint>

#include "runtime/base/host_device.h"
#include "runtime/base/rng.h"

namespace lockstep {

inline constexpr int kMostPowerSgdRank = 32;

// matrix is (rows, columns), left (rows, rank), right (columns, rank).
struct PowerSgdShape {
  int64_t rows = 0;
  int64_t columns = 0;
  int rank = 0;  // 1 to kMostPowerSgdRank
};

// Element i of a factor that begins without knowledge, in [-1, 1).
LOCKSTEP_HD float power_sgd_noise(int64_t i) {
  const RngStream stream = {.purpose = kRngPowerSgd};
  return 2 * uniform_from_word(philox_word(stream, static_cast<uint64_t>(i))) - 1;
}

// Whether a column is next to nothing once its parts along the columns before it are taken off:
// by the squares of its norm, of what is left and of what was taken off. Of what is left by
// cancellation, one part in ten thousand, the last two digits or so of a float are still its own.
// Never where the first is NaN or infinite.
LOCKSTEP_HD bool is_next_to_nothing(double left_squares, double taken_squares) {
  constexpr double kLeast = 1e-8;  // 1e-4, squared
  return left_squares == 0 || left_squares < kLeast * (left_squares + taken_squares);
}

}  // namespace lockstep
