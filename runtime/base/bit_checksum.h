#pragma once
// A checksum of elements of 16 or 32 bits: the sum of their bits as integers, modulo 2^32. It does
// not depend on the order of the elements or on how they are divided: the checksums of parts add
// up. A flip of any single bit changes it.

#include <bit>
#include <cstdint>

#include "runtime/base/half.h"
#include "runtime/base/host_device.h"

namespace lockstep {

LOCKSTEP_HD uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
LOCKSTEP_HD uint32_t bits_of(BFloat16 value) { return value.bits; }

// The sum of two pairs of checksums. Each pair is packed into one integer, 32 bits each.
inline uint64_t add_halves(uint64_t a, uint64_t b) {
  const uint64_t high = ((a >> 32) + (b >> 32)) << 32;
  return high | static_cast<uint32_t>(a + b);
}

}  // namespace lockstep
