// Catches: parts of the ring that overlap while both are taken, room that is never found again, and
// more parts than are allowed.
#include "collectives/exchange/ring.h"

#include <gtest/gtest.h>

#include <deque>

namespace lockstep::collectives {
namespace {

TEST(Ring, EqualPartsTakeTurns) {
  Ring ring(40, 16);
  for (int64_t part = 0; part < 4; ++part) EXPECT_EQ(ring.take(10), part * 10);
  EXPECT_EQ(ring.take(10), std::nullopt);
  for (int64_t part = 0; part < 9; ++part) {
    ring.give_back();
    EXPECT_EQ(ring.take(10), part % 4 * 10);
    EXPECT_EQ(ring.take(10), std::nullopt);
  }
  ring.clear();
  EXPECT_EQ(ring.take(40), 0);
}

TEST(Ring, HasNoMorePartsThanAllowed) {
  Ring ring(40, 2);
  EXPECT_EQ(ring.take(1), 0);
  EXPECT_EQ(ring.take(1), 1);
  EXPECT_EQ(ring.take(1), std::nullopt);
  EXPECT_EQ(ring.parts(), 2u);
  ring.give_back();
  EXPECT_EQ(ring.take(1), 2);
}

// Parts of all sizes, given back only where there is no room: none overlaps another, all lie in the
// ring, and what fits an empty ring is always taken in the end.
TEST(Ring, PartsDoNotOverlap) {
  struct Part {
    int64_t begin, end;
  };
  constexpr int64_t kLength = 64;
  Ring ring(kLength, 8);
  std::deque<Part> taken;
  uint32_t draw = 1;
  for (int round = 0; round < 10'000; ++round) {
    draw = draw * 1664525u + 1013904223u;
    const int64_t n = 1 + static_cast<int64_t>(draw >> 16) % (round % 3 == 0 ? kLength : 20);
    std::optional<int64_t> begin = ring.take(n);
    for (; !begin; begin = ring.take(n)) {
      ASSERT_FALSE(taken.empty()) << n;
      taken.pop_front();
      ring.give_back();
    }
    const Part part = {*begin, *begin + n};
    ASSERT_TRUE(part.begin >= 0 && part.end <= kLength);
    for (const Part& other : taken)
      ASSERT_TRUE(part.end <= other.begin || other.end <= part.begin) << round;
    taken.push_back(part);
    ASSERT_EQ(ring.parts(), taken.size());
  }
}

}  // namespace
}  // namespace lockstep::collectives
