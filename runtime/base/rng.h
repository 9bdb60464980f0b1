#pragma once
// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A value is a pure function of (seed, stream, index). So it does not depend on
// who computes it or in which order.

#include <cstdint>

#include "runtime/base/host_device.h"

namespace lockstep {

struct Philox4 {
  uint32_t word[4];
};

// Identifies one sequence of random numbers. `purpose` separates the uses: the kind of draw and,
// for graph ops, the op's index.
struct RngStream {
  uint64_t seed = 0;
  uint32_t step = 0;     // training step; epoch for the sampler; 0 for initialisation
  uint32_t lane = 0;     // data-parallel lane; 0 if there is none
  uint32_t purpose = 0;  // see RngPurpose
};

// High bits of RngStream::purpose. The low 24 bits are the index of the op or parameter.
enum RngPurpose : uint32_t {
  kRngInit = 1u << 24,
  kRngDropout = 2u << 24,
  kRngShuffle = 3u << 24,
  kRngGenerate = 4u << 24,
  kRngSynthetic = 5u << 24,
  kRngAugment = 6u << 24,
  kRngMixup = 7u << 24,
  kRngPowerSgd = 8u << 24,
  kRngNoise = 9u << 24,
  kRngMoments = 15u << 24,
};

// Four random words for block `index` of the stream. The seed is the key. The 128-bit counter
// consists of the index (64 bits, the high word xored with the purpose), step and lane.
LOCKSTEP_HD Philox4 philox(const RngStream& stream, uint64_t index) {
  uint32_t c0 = static_cast<uint32_t>(index),
           c1 = static_cast<uint32_t>(index >> 32) ^ stream.purpose;
  uint32_t c2 = stream.step, c3 = stream.lane;
  uint32_t k0 = static_cast<uint32_t>(stream.seed), k1 = static_cast<uint32_t>(stream.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c0;
    const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The word for element `i`: word i%4 of block i/4.
LOCKSTEP_HD uint32_t philox_word(const RngStream& stream, uint64_t i) {
  return philox(stream, i >> 2).word[i & 3];
}

// Uniform in [0, 1) with 24 random bits.
LOCKSTEP_HD float uniform_from_word(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// A random number in [0, bound) from one word, by multiplication (bias below bound/2^32).
LOCKSTEP_HD uint32_t bounded_from_word(uint32_t word, uint32_t bound) {
  return static_cast<uint32_t>((static_cast<uint64_t>(word) * bound) >> 32);
}

}  // namespace lockstep
