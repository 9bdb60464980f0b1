#pragma once
// The order of samples where they lie in shards that are better read one after the other.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/data/sampler.h"

namespace lockstep {

// How a data set wants to be shuffled.
struct SampleOrder {
  int64_t samples = 0;
  // Samples of each shard, in order; empty: one pool of all.
  std::vector<int64_t> shard_samples = {};
  // With shards: samples shuffled among each other, and the field of the config that says so.
  int64_t window = 0;
  const char* window_field = "";
};

// Sample index at a position of an epoch: a pure function of (order, seed, epoch, position).
// Without shards it is Sampler's permutation. With them, the shards come in a random order, one
// after the other, and every `window` consecutive samples of that sequence are permuted: what is
// read at a time lies together on the disk, in about window / shard length shards.
// One object per thread: it keeps what it computed last.
class EpochOrder {
 public:
  EpochOrder(SampleOrder order, uint64_t seed, bool shuffle);

  // Allocates nothing. 0 <= position < samples, 0 <= epoch < 2^32.
  int64_t at(int64_t epoch, int64_t position);

 private:
  void begin_epoch(int64_t epoch);

  SampleOrder order_;
  uint64_t seed_;
  bool shuffle_;
  int64_t epoch_ = -1;
  std::optional<Sampler> pool_;  // without shards
  // With shards: where each begins in the data set; for this epoch, where the i-th in turn begins
  // in the sequence, and which it is.
  std::vector<int64_t> stored_begin_, begin_, shard_;
  int64_t window_number_ = -1;
  std::optional<Sampler> window_;
};

}  // namespace lockstep
