// Catches: memory of two that live together, an offset that is not the lowest free one, and a
// placement that takes as many steps as there are pairs of blocks.
#include "runtime/plan/lifetimes.h"

#include <gtest/gtest.h>

#include <ctime>
#include <numeric>
#include <random>

namespace lockstep::plan {
namespace {

// The definition: each block, from the largest to the smallest, is held against all before it.
size_t place_one_by_one(std::vector<Lifetime>& blocks) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return blocks[a].bytes > blocks[b].bytes;
  });
  std::vector<const Lifetime*> placed;  // by offset
  size_t all = 0;
  for (size_t index : order) {
    Lifetime& block = blocks[index];
    block.offset = 0;
    for (const Lifetime* other : placed) {
      if (other->first_op > block.last_op || block.first_op > other->last_op) continue;
      if (block.offset + block.bytes <= other->offset) break;
      block.offset = std::max(block.offset, other->offset + other->bytes);
    }
    all = std::max(all, block.offset + block.bytes);
    placed.push_back(&block);
    std::stable_sort(placed.begin(), placed.end(), [](const Lifetime* a, const Lifetime* b) {
      return a->offset < b->offset;
    });
  }
  return all;
}

TEST(PlaceByLifetime, EachLiesAtTheLowestFreeOffset) {
  std::mt19937 random(7);
  const auto below = [&](int limit) {
    return std::uniform_int_distribution<int>(0, limit - 1)(random);
  };
  for (int trial = 0; trial < 300; ++trial) {
    const int ops = 1 + below(60), longest = 1 + below(ops), sizes = 1 + below(40);
    std::vector<Lifetime> blocks(static_cast<size_t>(below(120)));
    for (Lifetime& block : blocks) {
      block.bytes = static_cast<size_t>(below(sizes)) * 64;  // nothing at all, too
      block.first_op = below(ops);
      block.last_op = std::min(ops - 1, block.first_op + below(longest));
    }
    std::vector<Lifetime> expected = blocks;
    ASSERT_EQ(place_by_lifetime(blocks), place_one_by_one(expected)) << "trial " << trial;
    for (size_t i = 0; i < blocks.size(); ++i)
      ASSERT_EQ(blocks[i].offset, expected[i].offset) << "trial " << trial << ", block " << i;
  }
}

TEST(PlaceByLifetime, ManyBlocksTakeLittleMoreThanTheirNumber) {
  // As a deep network: what a layer leaves lives until its gradient is made.
  constexpr int kLayers = 100'000;
  std::vector<Lifetime> blocks;
  for (int layer = 0; layer < kLayers; ++layer) {
    blocks.push_back({.bytes = 4096, .first_op = layer, .last_op = 2 * kLayers - layer});
    blocks.push_back({.bytes = 1024, .first_op = layer, .last_op = layer + 1});
  }
  const std::clock_t start = std::clock();
  const size_t all = place_by_lifetime(blocks);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_GE(all, size_t{kLayers} * 4096);
  EXPECT_LT(seconds, 8) << "one by one it takes minutes";
}

}  // namespace
}  // namespace lockstep::plan
