#pragma once
// The hash of a set of weights: the sum, modulo 2^64, of a mix of every element's index and bits.
// It can be computed in any order and in parallel. The hashes of slices add up to the hash of the
// whole.

#include <cstdint>

#include "runtime/base/host_device.h"

namespace lockstep {

// The result of hashing: a sum that does not depend on how the elements are divided among calls,
// and the number of elements that are NaN or infinite.
struct ContentHash {
  uint64_t sum = 0;
  uint64_t not_finite = 0;
};

// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), and the step of its state.
inline constexpr uint64_t kSplitMixStep = 0x9E3779B97F4A7C15u;
LOCKSTEP_HD uint64_t split_mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// The mix of an element's index and its bits, each multiplied by an odd constant.
LOCKSTEP_HD uint64_t mix_element(uint64_t index, uint32_t bits) {
  return split_mix((index + 1) * kSplitMixStep + bits * 0xD1B54A32D192ED03u);
}

// Whether the float with these bits is NaN or infinite.
LOCKSTEP_HD bool is_not_finite(uint32_t bits) { return (bits & 0x7F800000u) == 0x7F800000u; }

}  // namespace lockstep
