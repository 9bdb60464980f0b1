#include "runtime/data/sample_order.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"

namespace lockstep {
namespace {

// A seed of its own for each window, so that no two are permuted alike. SplitMix64's finaliser.
uint64_t seed_of_window(uint64_t seed, int64_t window) {
  uint64_t z = seed + static_cast<uint64_t>(window + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

EpochOrder::EpochOrder(SampleOrder order, uint64_t seed, bool shuffle)
    : order_(std::move(order)), seed_(seed), shuffle_(shuffle) {
  const size_t shards = order_.shard_samples.size();
  int64_t begin = 0;
  for (const int64_t samples : order_.shard_samples) {
    stored_begin_.push_back(begin);
    begin += samples;
  }
  LOCKSTEP_CHECK(shards == 0 || (begin == order_.samples && order_.window >= 1));
  begin_.resize(shards);
  shard_.resize(shards);
}

void EpochOrder::begin_epoch(int64_t epoch) {
  epoch_ = epoch;
  const auto shards = static_cast<int64_t>(order_.shard_samples.size());
  if (!shuffle_ || shards == 0) {
    pool_.emplace(order_.samples, seed_, epoch, shuffle_);
    return;
  }
  window_number_ = -1;
  const Sampler shuffled(shards, seed_, epoch, true);
  int64_t begin = 0;
  for (int64_t i = 0; i < shards; ++i) {
    const int64_t shard = shuffled[i];
    begin_[static_cast<size_t>(i)] = begin;
    shard_[static_cast<size_t>(i)] = shard;
    begin += order_.shard_samples[static_cast<size_t>(shard)];
  }
}

int64_t EpochOrder::at(int64_t epoch, int64_t position) {
  if (epoch != epoch_) begin_epoch(epoch);
  if (!shuffle_ || shard_.empty()) return (*pool_)[position];
  const int64_t window = position / order_.window, first = window * order_.window;
  if (window != window_number_) {
    const int64_t length = std::min(order_.window, order_.samples - first);
    window_.emplace(length, seed_of_window(seed_, window), epoch, true);
    window_number_ = window;
  }
  const int64_t in_sequence = first + (*window_)[position - first];
  const auto next = std::upper_bound(begin_.begin(), begin_.end(), in_sequence);
  const auto turn = static_cast<size_t>(next - begin_.begin()) - 1;
  return stored_begin_[static_cast<size_t>(shard_[turn])] + in_sequence - begin_[turn];
}

}  // namespace lockstep
