// Catches: clocks brought together the wrong way round, an estimate outside of what the meetings
// allow, equal clocks that are made to differ.
#include "collectives/agree/clock_offset.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::collectives {
namespace {

// Meetings of two ranks by true time, the second one's clock `ahead_ms` ahead. They come one after
// the other and leave together, `late_ms` after the later one, the second `later_ms` after that.
struct Meetings {
  std::vector<ClockExchange> root, other;
  void add(
      double root_comes, double other_comes, double late_ms, double later_ms, double ahead_ms) {
    const double end = std::max(root_comes, other_comes) + late_ms;
    root.push_back({root_comes, end});
    other.push_back({other_comes + ahead_ms, end + later_ms + ahead_ms});
  }
};

TEST(ClockOffset, LiesWithinWhatItSays) {
  for (const double ahead : {1e7, 3.0, -5.0, -1e7}) {
    Meetings meetings;
    meetings.add(0, 1, 0.3, 0.1, ahead);
    meetings.add(11, 10, 0.2, 0.0, ahead);
    meetings.add(20, 20.01, 0.25, 0.05, ahead);
    const ClockOffset offset = clock_offset(meetings.root, meetings.other);
    EXPECT_LE(offset.within_ms, 0.3) << ahead;
    EXPECT_NEAR(offset.add_ms, -ahead, offset.within_ms + 1e-6);
    EXPECT_DOUBLE_EQ(clock_offset(meetings.other, meetings.root).add_ms, -offset.add_ms);
  }
}

TEST(ClockOffset, ClocksThatMayBeEqualAre) {
  Meetings meetings;
  for (int i = 0; i < 5; ++i) meetings.add(10 * i, 10 * i + 1, 0.5, 0.7, 0.01);
  const ClockOffset offset = clock_offset(meetings.root, meetings.other);
  EXPECT_EQ(offset.add_ms, 0);
  EXPECT_GE(offset.within_ms, 0.01);
  // The other's clock is ahead by all that the meetings allow.
  const ClockOffset lopsided =
      clock_offset(std::vector<ClockExchange>{{0, 1}}, std::vector<ClockExchange>{{1, 10}});
  EXPECT_EQ(lopsided.add_ms, 0);
  EXPECT_EQ(lopsided.within_ms, 10);
}

TEST(ClockOffset, OneRankNeedsNone) {
  const auto communicator = make_self_communicator();
  EXPECT_EQ(measure_clock_offset(*communicator).add_ms, 0);
}

}  // namespace
}  // namespace lockstep::collectives
