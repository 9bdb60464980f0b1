#pragma once
// A checksum of elements of 16 or 32 bits: the sum of their bits, modulo 2^32. It is the same in any
// order and however the elements are divided, so that sums of parts add up, and every flip of a
// single bit changes it.

#include <bit>
#include <cstdint>

#include "runtime/base/half.h"
#include "runtime/base/host_device.h"

namespace lockstep {

LOCKSTEP_HD uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
LOCKSTEP_HD uint32_t bits_of(BFloat16 value) { return value.bits; }

// The sum of two pairs of such sums, each pair in the halves of an integer.
inline uint64_t add_halves(uint64_t a, uint64_t b) {
  const uint64_t high = ((a >> 32) + (b >> 32)) << 32;
  return high | static_cast<uint32_t>(a + b);
}

}  // namespace lockstep
