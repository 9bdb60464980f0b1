#pragma once
// The order of samples: where they lie in shards that are better read one after the other, where
// classes are to come equally often, and where lengths are to be alike in a batch.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/data/sampler.h"

namespace lockstep {

// The samples of each class that has some.
struct ClassMembers {
  std::vector<int64_t> begin;    // (classes + 1) in `samples`
  std::vector<int64_t> samples;  // class by class
};

// How a data set wants to be shuffled.
struct SampleOrder {
  int64_t samples = 0;
  // Samples of each shard, in order; empty: one pool of all.
  std::vector<int64_t> shard_samples = {};
  // With shards: samples shuffled among each other, and the field of the config that says so.
  int64_t window = 0;
  const char* window_field = "";
  // data.balance_classes: each position draws a class, and one of its samples, with replacement.
  std::shared_ptr<const ClassMembers> balanced = nullptr;
  // data.group_by_length: (samples).
  std::shared_ptr<const std::vector<int32_t>> lengths = nullptr;
};

// Sample index at a position of an epoch: a pure function of (order, seed, epoch, position).
// Without shards it is Sampler's permutation. With them, the shards come in a random order, one
// after the other, and every `window` consecutive samples of that sequence are permuted: what is
// read at a time lies together on the disk, in about window / shard length shards.
// With lengths, the samples of each kGroupedBatches whole batches in a row are sorted by length, and
// these batches come in a random order. The batch that begins in one epoch and ends in the next stays
// as it is.
// One object per thread: it keeps what it computed last.
class EpochOrder {
 public:
  static constexpr int64_t kGroupedBatches = 64;

  // `batch`: samples of a global batch, for lengths.
  EpochOrder(SampleOrder order, uint64_t seed, bool shuffle, int64_t batch = 1);

  // Allocates nothing. 0 <= position < samples, 0 <= epoch < 2^32.
  int64_t at(int64_t epoch, int64_t position);

 private:
  struct Grouped {
    int32_t length;
    int64_t position, index;
  };

  void begin_epoch(int64_t epoch);
  int64_t ungrouped(int64_t epoch, int64_t position);
  int64_t draw_balanced(int64_t epoch, int64_t position) const;
  void sort_group(int64_t epoch, int64_t group, int64_t first, int64_t count);

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
  // With lengths: the samples of a group by length, and the order of its batches.
  int64_t batch_;
  int64_t group_epoch_ = -1, group_number_ = -1;
  std::vector<Grouped> group_;
  std::optional<Sampler> group_batches_;
};

}  // namespace lockstep
