#pragma once
// Moments of two bytes, rounded at random: up with the share by which the float lies above the
// bfloat16 below it, so that what an average of many steps adds up to is right on average, though
// one step adds less than the last bit counts. The random numbers are a function of the seed, the
// step, the parameter and the element: whoever computes it, the bits are the same.

#include <bit>
#include <cstdint>

#include "runtime/base/half.h"
#include "runtime/base/host_device.h"
#include "runtime/base/rng.h"

namespace lockstep {

// Of one update of all parameters.
struct MomentRounding {
  uint64_t seed = 0;
  uint32_t step = 0;
};

// Of one parameter in one update.
struct RoundingKey {
  uint32_t first = 0, second = 0;
};

LOCKSTEP_HD RoundingKey rounding_key(const MomentRounding& rounding, uint32_t parameter) {
  const Philox4 drawn = philox(
      {.seed = rounding.seed, .step = rounding.step, .lane = 0, .purpose = kRngMoments | parameter},
      0);
  return {drawn.word[0], drawn.word[1]};
}

// 32 bits for an element of the parameter, 16 for each of its moments: two rounds of multiplying
// and shifting mix its number, as its one word of Philox would take ten times as long.
LOCKSTEP_HD uint32_t rounding_bits(const RoundingKey& key, uint32_t element) {
  uint32_t x = element ^ key.first;
  x = (x ^ x >> 16) * 0x7feb352du;
  x = ((x ^ x >> 15) + key.second) * 0x846ca68bu;
  return x ^ x >> 16;
}

// `random`, below 2^16, is added to the bits that are cut off. What is not finite stays so.
LOCKSTEP_HD BFloat16 round_at_random(float x, uint32_t random) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t rounded = magnitude < 0x7f800000u ? bits + random : bits;
  const uint32_t quiet = magnitude > 0x7f800000u ? 0x40u : 0u;  // of a NaN whose bits are cut off
  return {static_cast<uint16_t>(rounded >> 16 | quiet)};
}

}  // namespace lockstep
