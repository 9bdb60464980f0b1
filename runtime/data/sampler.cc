#include "runtime/data/sampler.h"

#include <algorithm>
#include <bit>

#include "runtime/base/error.h"
#include "runtime/base/rng.h"

namespace lockstep {

// A Feistel network is a bijection of [0, 2^bits) whatever its round function does: each round
// changes one half by exclusive or with a function of the other half and a round key. Values of at
// least `samples` are sent through again until one falls inside ("cycle walking"), which keeps the
// whole a bijection of [0, samples); as 2^bits < 2 * samples (but for tiny sets), that takes under
// two passes on average. Round keys come from Philox; the round function is only an integer hash,
// as this decides the order of samples, not a secret.

namespace {

constexpr int kSmallestDomainBits =
    4;  // fewer bits would leave the network few permutations to choose

// `bits` bits, each of which depends on all of `value` and `key`. One product alone is not enough:
// pairs of positions would then prefer some pairs of samples.
uint64_t mix(uint64_t value, uint32_t key, int bits) {
  uint32_t hash = (static_cast<uint32_t>(value) ^ key) * 0x9E3779B1u;
  hash = (hash ^ hash >> 15) * 0x85EBCA6Bu;
  return hash >> (32 - bits);
}

}  // namespace

Sampler::Sampler(int64_t samples, uint64_t seed, int64_t epoch, bool shuffle)
    : samples_(samples), shuffle_(shuffle && samples > 1) {
  LOCKSTEP_CHECK(samples >= 1 && samples < (int64_t{1} << 62), "samples = {}", samples);
  LOCKSTEP_CHECK(epoch >= 0 && epoch < (int64_t{1} << 32), "epoch = {}", epoch);
  const int bits =
      std::max<int>(kSmallestDomainBits, std::bit_width(static_cast<uint64_t>(samples) - 1));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
  const RngStream stream{
      .seed = seed, .step = static_cast<uint32_t>(epoch), .purpose = kRngShuffle};
  for (int round = 0; round < kRounds; round += 4) {
    const Philox4 block = philox(stream, round / 4);
    std::copy_n(block.word, 4, &keys_[round]);
  }
}

uint64_t Sampler::permute(uint64_t value) const {
  uint64_t low = value & ((uint64_t{1} << low_bits_) - 1);
  uint64_t high = value >> low_bits_;
  for (int round = 0; round < kRounds; round += 2) {
    low ^= mix(high, keys_[round], low_bits_);
    high ^= mix(low, keys_[round + 1], high_bits_);
  }
  return high << low_bits_ | low;
}

int64_t Sampler::operator[](int64_t position) const {
  LOCKSTEP_CHECK(position >= 0 && position < samples_, "position = {}", position);
  if (!shuffle_) return position;
  uint64_t value = static_cast<uint64_t>(position);
  do {
    value = permute(value);
  } while (value >= static_cast<uint64_t>(samples_));
  return static_cast<int64_t>(value);
}

}  // namespace lockstep
