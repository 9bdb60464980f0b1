#include "runtime/data/sampler.h"

#include <algorithm>
#include <bit>

#include "runtime/base/error.h"
#include "runtime/base/rng.h"

namespace lockstep::data {

// The permutation is a Feistel network with cycle walking, as in format-preserving encryption
// (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). It needs no table, so every
// rank can look up any position of any epoch in constant memory.
//
// A value is split into `low` and `high` bits. Each round xors one half with a hash, mix(), of the
// other half and a round key. Repeating a round undoes it, so the network is a bijection of
// [0, 2^bits), whatever the hash is. To get a bijection of [0, samples), a result >= samples is
// permuted again until it is below. This walks along the cycle of the permutation and must come
// back below `samples`, at the latest to the value that it started from. As 2^bits < 2 * samples,
// except for tiny data sets, it takes fewer than two passes on average.
//
// The round keys come from Philox with (seed, epoch). The hash is a cheap one: the order of samples
// must look random but is no secret. A change of keys, rounds or mix() changes the order of every
// run, and with it the weights that the tests expect.

namespace {

// With fewer bits the network could represent only a few permutations.
constexpr int kMinDomainBits = 4;

// A hash of `bits` bits, each of which depends on all bits of `value` and `key`. A single
// multiplication is not enough: some pairs of positions would then prefer some pairs of samples.
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
      std::max<int>(kMinDomainBits, std::bit_width(static_cast<uint64_t>(samples) - 1));
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

}  // namespace lockstep::data
