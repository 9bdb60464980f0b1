// Catches: a change of the random numbers (every run would differ from its checkpoints), and
// streams that repeat each other.
#include "runtime/base/rng.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep {
namespace {

// Known answers of Philox 4x32-10, as the paper's library publishes them for an all-zero counter
// and key.
TEST(Rng, PhiloxKnownAnswer) {
  const Philox4 zero = philox({0, 0, 0, 0}, 0);
  EXPECT_EQ(zero.word[0], 0x6627e8d5u);
  EXPECT_EQ(zero.word[1], 0xe169c58du);
  EXPECT_EQ(zero.word[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.word[3], 0x9b00dbd8u);
}

TEST(Rng, EveryPartOfTheStreamMatters) {
  std::set<uint32_t> first;
  first.insert(philox_word({1, 0, 0, 0}, 0));
  first.insert(philox_word({uint64_t{1} << 40, 0, 0, 0}, 0));
  first.insert(philox_word({0, 1, 0, 0}, 0));
  first.insert(philox_word({0, 0, 1, 0}, 0));
  first.insert(philox_word({0, 0, 0, kRngDropout}, 0));
  first.insert(philox_word({0, 0, 0, kRngDropout | 1}, 0));
  first.insert(philox_word({0, 0, 0, 0}, 4));
  first.insert(philox_word({0, 0, 0, 0}, uint64_t{1} << 36));
  EXPECT_EQ(first.size(), 8u);
}

TEST(Rng, UniformStaysBelowOne) {
  EXPECT_EQ(uniform_from_word(0), 0.0f);
  EXPECT_LT(uniform_from_word(0xFFFFFFFFu), 1.0f);
  EXPECT_EQ(bounded_from_word(0xFFFFFFFFu, 7), 6u);
}

}  // namespace
}  // namespace lockstep
