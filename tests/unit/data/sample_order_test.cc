// Catches an order that is no permutation, that depends on what was asked before, or that jumps
// about in shards which are to be read in sequence.

#include "runtime/data/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

namespace lockstep::data {
namespace {

std::vector<int64_t> epoch_of(EpochOrder& order, int64_t epoch, int64_t samples) {
  std::vector<int64_t> indices;
  for (int64_t p = 0; p < samples; ++p) indices.push_back(order.at(epoch, p));
  return indices;
}

SampleOrder shards(const std::vector<int64_t>& sizes, int64_t window) {
  return {std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), sizes, window};
}

TEST(SampleOrder, ShardsArePermuted) {
  const std::vector<int64_t> sizes{5, 1, 7, 100, 33, 2, 50};
  for (int64_t window : {1, 3, 64, 1000}) {
    EpochOrder order(shards(sizes, window), 4, true);
    std::set<std::vector<int64_t>> different;
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
      std::vector<int64_t> indices = epoch_of(order, epoch, 198);
      different.insert(indices);
      std::sort(indices.begin(), indices.end());
      for (int64_t i = 0; i < 198; ++i) ASSERT_EQ(indices[static_cast<size_t>(i)], i);
    }
    EXPECT_EQ(different.size(), 5u);
  }
}

TEST(SampleOrder, IsAPureFunction) {
  EpochOrder forwards(shards({40, 50, 60}, 16), 4, true);
  const auto indices = epoch_of(forwards, 3, 150);
  EpochOrder backwards(shards({40, 50, 60}, 16), 4, true);
  for (int64_t p = 149; p >= 0; p -= 7) {
    EXPECT_EQ(backwards.at(3, p), indices[static_cast<size_t>(p)]);
    backwards.at(p % 4, 0);  // another epoch in between
  }
  EpochOrder other(shards({40, 50, 60}, 16), 5, true);
  EXPECT_NE(epoch_of(other, 3, 150), indices);
}

TEST(SampleOrder, ReadsFewShardsAtATime) {
  const std::vector<int64_t> sizes(20, 100);
  EpochOrder order(shards(sizes, 50), 1, true);
  const auto indices = epoch_of(order, 0, 2000);
  for (size_t begin = 0; begin < 2000; begin += 50) {
    std::set<int64_t> used;
    for (size_t i = begin; i < begin + 50; ++i) used.insert(indices[i] / 100);
    EXPECT_EQ(used.size(), 1u) << begin;
  }
  EXPECT_NE(indices[0] / 100 + indices[100] / 100 + indices[200] / 100, 0 + 1 + 2);
  int in_order = 0;
  for (size_t i = 1; i < 50; ++i) in_order += indices[i] == indices[i - 1] + 1;
  EXPECT_LT(in_order, 10);
}

TEST(SampleOrder, IsStoredOrderWithoutShuffling) {
  EpochOrder order(shards({3, 4}, 2), 1, false);
  EXPECT_EQ(epoch_of(order, 2, 7), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(SampleOrder, IsTheSamplersWithoutShards) {
  EpochOrder order({500, {}, 0}, 8, true);
  const Sampler sampler(500, 8, 2, true);
  for (int64_t p = 0; p < 500; ++p) ASSERT_EQ(order.at(2, p), sampler[p]);
}

}  // namespace
}  // namespace lockstep::data
