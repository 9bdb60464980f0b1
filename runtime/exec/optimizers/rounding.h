#pragma once
// Two-byte moments with stochastic rounding: a float is rounded up with the probability by which it
// lies above the bfloat16 below it. So an average over many steps is right in expectation, even if
// each step adds less than the last bit. The random numbers are a function of the seed, the step,
// the parameter and the element, so the bits do not depend on which rank or thread computes them.

#include <bit>
#include <cstdint>

#include "runtime/base/half.h"
#include "runtime/base/host_device.h"
#include "runtime/base/rng.h"

namespace lockstep::exec {

// The key of one update of all parameters.
struct MomentRounding {
  uint64_t seed = 0;
  uint32_t step = 0;
};

// The key of one parameter in one update.
struct RoundingKey {
  uint32_t first = 0, second = 0;
};

LOCKSTEP_HD RoundingKey rounding_key(const MomentRounding& rounding, uint32_t parameter) {
  const Philox4 drawn = philox(
      {.seed = rounding.seed, .step = rounding.step, .lane = 0, .purpose = kRngMoments | parameter},
      0);
  return {drawn.word[0], drawn.word[1]};
}

// 32 random bits for an element of the parameter: 16 for each of its moments. Two rounds of
// multiplying and shifting mix its index; one Philox word for each element would take ten times as
// long.
LOCKSTEP_HD uint32_t rounding_bits(const RoundingKey& key, uint32_t element) {
  uint32_t x = element ^ key.first;
  x = (x ^ x >> 16) * 0x7feb352du;
  x = ((x ^ x >> 15) + key.second) * 0x846ca68bu;
  return x ^ x >> 16;
}

// The same for a third moment: the low 16 bits.
LOCKSTEP_HD uint32_t more_rounding_bits(const RoundingKey& key, uint32_t element) {
  return rounding_bits({key.first ^ 0x9e3779b9u, key.second + 0x85ebca6bu}, element);
}

// Adds `random`, below 2^16, to the bits that are cut off. Infinities and NaNs stay as they are.
LOCKSTEP_HD BFloat16 round_at_random(float x, uint32_t random) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t rounded = magnitude < 0x7f800000u ? bits + random : bits;
  // for a NaN whose set bits are all cut off
  const uint32_t quiet = magnitude > 0x7f800000u ? 0x40u : 0u;
  return {static_cast<uint16_t>(rounded >> 16 | quiet)};
}

}  // namespace lockstep::exec
