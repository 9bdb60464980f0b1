#include "runtime/data/sample_order.h"

#include <algorithm>
#include <utility>

#include "runtime/base/content_hash.h"
#include "runtime/base/error.h"
#include "runtime/base/int128.h"
#include "runtime/base/rng.h"

namespace lockstep::data {
namespace {

constexpr uint32_t kBalancePurpose = kRngShuffle | 4;  // 3 is in masking.cc
constexpr uint64_t kGroupSeed = 0x5851F42D4C957F2Du;   // keeps groups apart from windows

// A random number in [0, bound) from two words.
int64_t bounded(uint32_t high, uint32_t low, int64_t bound) {
  const uint64_t word = uint64_t{high} << 32 | low;
  return static_cast<int64_t>((static_cast<UInt128>(word) * static_cast<uint64_t>(bound)) >> 64);
}

// A different seed for each window, so that no two windows are permuted alike.
uint64_t seed_of_window(uint64_t seed, int64_t window) {
  return split_mix(seed + static_cast<uint64_t>(window + 1) * kSplitMixStep);
}

}  // namespace

EpochOrder::EpochOrder(SampleOrder order, uint64_t seed, bool shuffle, int64_t batch)
    : order_(std::move(order)), seed_(seed), shuffle_(shuffle), batch_(batch) {
  const size_t shards = order_.shard_samples.size();
  int64_t begin = 0;
  for (const int64_t samples : order_.shard_samples) {
    stored_begin_.push_back(begin);
    begin += samples;
  }
  LOCKSTEP_CHECK(shards == 0 || (begin == order_.samples && order_.window >= 1));
  begin_.resize(shards);
  shard_.resize(shards);
  if (order_.lengths != nullptr)
    group_.reserve(static_cast<size_t>(std::min(order_.samples, kGroupedBatches * batch_)));
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

// Batches straddle epochs: one begins at each position with (epoch * samples + position) % batch_
// == 0. So an epoch is the tail of a batch that began earlier (`head` samples), whole batches, and
// the beginning of one that ends in the next epoch. Only whole batches are grouped by length.
int64_t EpochOrder::at(int64_t epoch, int64_t position) {
  if (!shuffle_ || order_.lengths == nullptr) return ungrouped(epoch, position);
  const int64_t samples = order_.samples;
  const int64_t past = (epoch % batch_) * (samples % batch_) % batch_;  // no overflow
  const int64_t head = (batch_ - past) % batch_;
  const int64_t in_whole = position - head;  // index among the samples of whole batches
  const int64_t whole = std::max<int64_t>(0, samples - head) / batch_ * batch_;
  if (in_whole < 0 || in_whole >= whole) return ungrouped(epoch, position);
  const int64_t group_size = kGroupedBatches * batch_;
  const int64_t group = in_whole / group_size, begin = group * group_size;
  if (epoch != group_epoch_ || group != group_number_)
    sort_group(epoch, group, head + begin, std::min(group_size, whole - begin));
  const int64_t turn = (in_whole - begin) / batch_, row = (in_whole - begin) % batch_;
  return group_[static_cast<size_t>((*group_batches_)[turn] * batch_ + row)].index;
}

void EpochOrder::sort_group(int64_t epoch, int64_t group, int64_t first, int64_t count) {
  group_epoch_ = epoch;
  group_number_ = group;
  group_.clear();
  for (int64_t position = first; position < first + count; ++position) {
    const int64_t index = ungrouped(epoch, position);
    group_.push_back({(*order_.lengths)[static_cast<size_t>(index)], position, index});
  }
  std::ranges::sort(group_, [](const Grouped& a, const Grouped& b) {
    return a.length != b.length ? a.length < b.length : a.position < b.position;
  });
  group_batches_.emplace(
      count / batch_, seed_of_window(seed_ ^ kGroupSeed, group), epoch, /*shuffle=*/true);
}

int64_t EpochOrder::draw_balanced(int64_t epoch, int64_t position) const {
  const RngStream stream{
      .seed = seed_, .step = static_cast<uint32_t>(epoch), .lane = 0, .purpose = kBalancePurpose};
  const Philox4 words = philox(stream, static_cast<uint64_t>(position));
  const ClassMembers& members = *order_.balanced;
  const auto drawn =
      bounded(words.word[0], words.word[1], static_cast<int64_t>(members.begin.size()) - 1);
  const int64_t begin = members.begin[static_cast<size_t>(drawn)],
                end = members.begin[static_cast<size_t>(drawn) + 1];
  return members
      .samples[static_cast<size_t>(begin + bounded(words.word[2], words.word[3], end - begin))];
}

int64_t EpochOrder::ungrouped(int64_t epoch, int64_t position) {
  if (shuffle_ && order_.balanced != nullptr) return draw_balanced(epoch, position);
  if (epoch != epoch_) begin_epoch(epoch);
  if (!shuffle_ || shard_.empty()) return (*pool_)[position];
  const int64_t window = position / order_.window, first = window * order_.window;
  if (window != window_number_) {
    const int64_t length = std::min(order_.window, order_.samples - first);
    window_.emplace(length, seed_of_window(seed_, window), epoch, true);
    window_number_ = window;
  }
  const int64_t in_sequence = first + (*window_)[position - first];
  const auto next = std::ranges::upper_bound(begin_, in_sequence);
  const auto turn = static_cast<size_t>(next - begin_.begin()) - 1;
  return stored_begin_[static_cast<size_t>(shard_[turn])] + in_sequence - begin_[turn];
}

}  // namespace lockstep::data
