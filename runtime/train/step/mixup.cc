#include "runtime/train/step/mixup.h"

#include <cmath>
#include <numbers>

#include "runtime/base/rng.h"

namespace lockstep::train {
namespace {

// Uniform in (0, 1).
double uniform(uint32_t word) { return (word + 0.5) * 0x1p-32; }

// The logarithm of a sample of Gamma(shape), shape > 0; for a small shape, most samples are too
// small for a double. Marsaglia and Tsang, "A simple method for generating gamma variables" (2000):
// the density of d v, with v = (1 + c x)^3 of a normal x, is at most a constant times the normal's,
// and x is accepted with their quotient as the probability. For a shape below 1, it is Gamma(shape
// + 1) times u^(1 / shape). Attempt k reads block 2 k + `which` of the stream.
double log_gamma_variate(double shape, const RngStream& stream, uint64_t which) {
  const bool boosted = shape < 1;
  const double d = (boosted ? shape + 1 : shape) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (uint64_t attempt = 0;; ++attempt) {
    const Philox4 words = philox(stream, 2 * attempt + which);
    const double x = std::sqrt(-2 * std::log(uniform(words.word[0]))) *
                     std::cos(2 * std::numbers::pi * uniform(words.word[1]));
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double log_v = 3 * std::log(root);
    if (std::log(uniform(words.word[2])) >= x * x / 2 + d * (1 - std::exp(log_v) + log_v)) continue;
    return std::log(d) + log_v + (boosted ? std::log(uniform(words.word[3])) / shape : 0);
  }
}

}  // namespace

// If x and y are samples of Gamma(alpha), then x / (x + y) is one of Beta(alpha, alpha).
float draw_mix(float alpha, uint64_t seed, uint32_t step, uint32_t lane) {
  const RngStream stream{seed, step, lane, kRngMixup};
  const double distance = log_gamma_variate(alpha, stream, 0) - log_gamma_variate(alpha, stream, 1);
  return static_cast<float>(1 / (1 + std::exp(-std::abs(distance))));
}

}  // namespace lockstep::train
