#pragma once
// The order of samples in an epoch: shuffled within shards that are best read one after the other,
// balanced over classes, or grouped by length.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/data/sampler.h"

namespace lockstep::data {

// The samples of each class that has any.
struct ClassMembers {
  std::vector<int64_t> begin;    // (classes + 1) offsets into `samples`
  std::vector<int64_t> samples;  // sample indices, class by class
};

// How a data set should be shuffled.
struct SampleOrder {
  int64_t samples = 0;
  // The number of samples in each shard, in stored order. Empty: all samples are shuffled together.
  std::vector<int64_t> shard_samples = {};
  // With shards: how many consecutive samples are shuffled together, and the config field for it.
  int64_t window = 0;
  const char* window_field = "";
  // data.balance_classes: each position draws a class, then one of its samples, with replacement.
  std::shared_ptr<const ClassMembers> balanced = nullptr;
  // data.group_by_length: (samples) tokens of each sample.
  std::shared_ptr<const std::vector<int32_t>> lengths = nullptr;
};

// The sample index at a position of an epoch: a pure function of (order, seed, epoch, position).
//
// Without shards it is Sampler's permutation. With shards, a random order of the shards is drawn
// and their samples are concatenated; every `window` consecutive samples of that sequence are
// permuted. So the samples of a window come from about window / shard length shards, and reads are
// mostly sequential.
//
// With lengths, each group of kGroupedBatches consecutive batches is sorted by length, and the
// batches of a group then come in a random order. A batch that straddles two epochs is not sorted.
//
// Not thread-safe, as it caches its last window and group: use one object per thread.
class EpochOrder {
 public:
  static constexpr int64_t kGroupedBatches = 64;

  // `batch`: samples of a global batch, used only with lengths.
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
  // With shards. stored_begin_[s]: first sample of shard s in the data set. In the current epoch,
  // shard_[i] is the i-th shard in the drawn order, which begins at begin_[i] in the sequence.
  std::vector<int64_t> stored_begin_, begin_, shard_;
  int64_t window_number_ = -1;
  std::optional<Sampler> window_;
  // With lengths: the samples of the current group by length, and the order of its batches.
  int64_t batch_;
  int64_t group_epoch_ = -1, group_number_ = -1;
  std::vector<Grouped> group_;
  std::optional<Sampler> group_batches_;
};

}  // namespace lockstep::data
