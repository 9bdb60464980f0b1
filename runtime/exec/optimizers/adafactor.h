#pragma once
// Adafactor (Shazeer and Stern, "Adaptive learning rates with sublinear memory cost", 2018). The
// formulas are those of torch.optim.Adafactor. For step t, with w = t^beta2_decay, and for each
// tensor P with gradient G:
//
//   R <- (1 - w) R + w mean of G^2 over each row            a matrix's two averages
//   C <- (1 - w) C + w mean of G^2 over each column
//   V  = R C / max(mean(R), epsilon1)                       their product estimates the average
//   V <- (1 - w) V + w G^2                                  for a vector: the average itself
//   U  = G / sqrt(max(V, epsilon1^2))                       the direction
//   P <- (1 - lr weight_decay) P - a / max(1, RMS(U) / clip_threshold) U
//
// where a = max(epsilon2, RMS(P)) min(lr, 1 / sqrt(t)). A parameter of more than two axes is a
// batch of matrices over its last two.
//
// The sums of squares over rows and columns are exact, so that their bits do not depend on how
// ranks, threads and kernels divide a matrix. A square is rounded to a fixed-point number of two
// words, in units that the norm of all gradients fixes: g^2 <= norm^2 < 2^51 units. Both words are
// sums of integers. A square is rounded at 2^-33 units, so at most at norm^2 / 2^83.

#include <bit>
#include <cmath>
#include <cstdint>

#include "runtime/base/factored_shape.h"
#include "runtime/base/host_device.h"
#include "runtime/exec/optimizers/slice.h"

namespace lockstep::exec {

// The first half for vectors: overwrites the gradient with the direction.
struct AdafactorDirection {
  float weight, one_minus_weight;  // w
  float least_square;              // epsilon1^2
  float grad_scale;                // multiplies every gradient first

  template <typename Config>
  static AdafactorDirection make(const Config& config, const UpdateStep& step) {
    const double weight = std::pow(static_cast<double>(step.number), config.beta2_decay),
                 epsilon = config.epsilon1;
    return {.weight = static_cast<float>(weight),
            .one_minus_weight = static_cast<float>(1 - weight),
            .least_square = static_cast<float>(epsilon * epsilon),
            .grad_scale = static_cast<float>(step.gradient_scale)};
  }

  LOCKSTEP_HD void operator()(float& gradient, const float& /*parameter*/, float& variance) const {
    const float g = gradient * grad_scale;
    variance = std::fma(one_minus_weight, variance, weight * g * g);
    gradient = g / std::sqrt(variance > least_square ? variance : least_square);
  }
};

// Constants of a step.
struct FactoredStep {
  double units = 1;        // units of the fixed-point numbers in 1: a power of 2
  float least_square = 0;  // epsilon1^2
  float grad_scale = 1;    // multiplies every gradient first
};

// Elements [first, first + elements) of a parameter.
struct FactoredPiece {
  FactoredShape shape;
  int64_t first = 0, elements = 0;
  float* gradients = nullptr;  // from element `first` on
  // The parameter's sums: all rows, then all columns.
  int64_t *high = nullptr, *low = nullptr;
  const float* factors = nullptr;  // likewise: R / max(mean(R), epsilon1), and C
};

// Adding it to a double below 2^51 leaves the double's integer part in the last bits.
inline constexpr double kRoundToInteger = 6755399441055744.0;  // 1.5 * 2^52
inline constexpr double kLowPerHigh = 4294967296.0;            // 2^32

struct FixedPoint {
  int64_t high = 0, low = 0;
};

// The integer nearest to x, below 2^51.
LOCKSTEP_HD int64_t nearest_integer(double x) {
  return std::bit_cast<int64_t>(x + kRoundToInteger) - std::bit_cast<int64_t>(kRoundToInteger);
}

// The square of a gradient that is scaled already. Every product in it is exact, so it does not
// matter which of them a compiler fuses with a sum.
LOCKSTEP_HD FixedPoint fixed_square(float g, double units) {
  const double x = static_cast<double>(g) * g * units;
  const double integer = (x + kRoundToInteger) - kRoundToInteger;
  return {nearest_integer(x), nearest_integer((x - integer) * kLowPerHigh)};
}

// The number that sums of both words stand for.
inline double fixed_value(int64_t high, int64_t low, double units) {
  return (static_cast<double>(high) + static_cast<double>(low) / kLowPerHigh) / units;
}

// The units for gradients of this norm. Rounding may add a little to the squares, so they get a
// bit more room.
inline double units_for(double norm) {
  int exponent = 0;
  std::frexp(norm * norm, &exponent);  // norm^2 < 2^exponent
  return std::ldexp(1.0, 50 - exponent);
}

LOCKSTEP_HD float factored_direction(float gradient,
                                     float row,
                                     float column,
                                     const FactoredStep& step) {
  const float variance = row * column;
  return gradient * step.grad_scale /
         std::sqrt(variance > step.least_square ? variance : step.least_square);
}

}  // namespace lockstep::exec
