// Catches: a user's error that is tried again, or a death that is not; a preempted run that starts
// by itself; restarts without end; slots that are left unused.
#include "launcher/launch/restarts.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

StartEnd ended_with(std::vector<std::optional<int>> codes) {
  StartEnd end;
  for (const std::optional<int>& code : codes)
    end.ranks.push_back({static_cast<int>(end.ranks.size()), "node1", 4711, code});
  return end;
}

TEST(Decide, TriesAgainWhatAPeerOrASignalEnded) {
  for (const std::optional<int>& code : {std::optional(6),
                                         std::optional(137),
                                         std::optional(139),
                                         std::optional(70),
                                         std::optional(74),  // a disk
                                         std::optional(0),
                                         std::optional<int>()})
    EXPECT_TRUE(decide(ended_with({code, 6})).again);
  EXPECT_TRUE(decide({}).again) << "no host answered";
}

TEST(Decide, EndsWithWhatEveryStartWouldEndWith) {
  for (const int code : {2, 3, 4, 5, 7}) {
    const Decision decision = decide(ended_with({6, code, 137}));
    EXPECT_FALSE(decision.again);
    EXPECT_EQ(decision.code, code);
  }
}

TEST(Decide, EndsWhereItWasAskedTo) {
  EXPECT_EQ(decide(ended_with({75, 75})).code, 75);
  EXPECT_FALSE(decide(ended_with({75, 6})).again);
  StartEnd early = ended_with({138, 6});  // before the ranks knew the signal
  early.stop_requested = true;
  EXPECT_FALSE(decide(early).again);
  EXPECT_EQ(decide(early).code, 75);
  early.work_lost = true;
  EXPECT_EQ(decide(early).code, 6);
  StartEnd full = ended_with({74, 74});  // the disk, when it was to save
  full.stop_requested = true;
  EXPECT_FALSE(decide(full).again);
  EXPECT_EQ(decide(full).code, 4);
}

TEST(Decide, EndsWhereTooFewHostsAreLeft) {
  StartEnd end = ended_with({6, std::nullopt});
  end.too_few_left = true;
  EXPECT_FALSE(decide(end).again);
  EXPECT_EQ(decide(end).code, 6);
}

TEST(Decide, BelievesTheRunFolder) {
  StartEnd end = ended_with({0, 139});
  end.done = true;
  EXPECT_FALSE(decide(end).again);
  EXPECT_EQ(decide(end).code, 0);
}

TEST(Restarts, PauseLongerAndEndUnlessThereIsProgress) {
  Restarts restarts(8);
  for (const double seconds : {1., 2., 4., 8., 16., 32., 60., 60.})
    EXPECT_EQ(restarts.next(), seconds);
  EXPECT_EQ(restarts.next(), std::nullopt);
  restarts.progress();
  EXPECT_EQ(restarts.next(), 1.);
  EXPECT_EQ(Restarts(0).next(), std::nullopt);
}

TEST(RanksFor, AreFewerOnlyIfTheyMayBe) {
  EXPECT_EQ(ranks_for(4, 9, false), 4);
  EXPECT_EQ(ranks_for(4, 3, false), 0);
  EXPECT_EQ(ranks_for(4, 3, true), 3);
  EXPECT_EQ(ranks_for(8, 7, true), 7);
  EXPECT_EQ(ranks_for(8, 0, true), 0);
}

TEST(RankEnd, IsToldInWords) {
  EXPECT_EQ(text_of({1, "node1", 4711, 137}),
            "rank 1 on node1 (process 4711) was ended by signal 9 (Killed)");
  EXPECT_EQ(text_of({0, "node1", 7, 6}), "rank 0 on node1 (process 7) ended with exit code 6");
  EXPECT_EQ(text_of({2, "node2", 8, std::nullopt}),
            "rank 2 on node2 (process 8) was lost with its host");
  EXPECT_EQ(text_of({2, "node2", 8, std::nullopt, "state D"}),
            "rank 2 on node2 (process 8) cannot be killed: state D");
}

}  // namespace
}  // namespace lockstep::launch
