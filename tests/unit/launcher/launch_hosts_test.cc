// Catches: a bad host that stops every start, a good one that is left out, one that never comes
// back; a drained host that ends the run or that the run waits for; a rank that fails before its
// first step and is started again for ever, or is given up because of a disk or a host.
#include <gtest/gtest.h>

#include "launcher/launch/first_steps.h"
#include "launcher/launch/host_health.h"

namespace lockstep::launch {
namespace {

using Names = std::vector<std::string>;

const std::vector<launcher::HostSlots> kHosts = {{"a", 2}, {"b", 2}, {"c", 2}};
const WantedRanks kFewer = {.ranks = 6, .fewer = true};

// Two ranks on each of the hosts, in the order in which they end.
StartEnd ended(std::vector<std::pair<int, std::optional<int>>> ranks) {
  StartEnd end;
  for (const auto& [rank, code] : ranks)
    end.ranks.push_back(
        {rank, "node", 100 + rank, code, "", kHosts[static_cast<size_t>(rank / 2)].name});
  return end;
}

Names names_of(const std::vector<launcher::HostSlots>& hosts) {
  Names names;
  for (const launcher::HostSlots& host : hosts) names.push_back(host.name);
  return names;
}

// A rank of b dies first; the survivors notice.
const StartEnd kBadB = ended({{0, 6}, {3, 137}, {2, 6}, {1, 6}, {4, 6}, {5, 137}});

TEST(HostHealth, LeavesOutAHostThatIsFirstToFailThreeTimes) {
  HostHealth health(kHosts, kFewer);
  for (const double now : {1., 2.}) {
    EXPECT_TRUE(health.note(kBadB, 1, now).lines.empty());
    EXPECT_EQ(health.present(now).size(), 3u);
  }
  const auto [lines, left_out] = health.note(kBadB, 1, 3);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(left_out);
  EXPECT_EQ(
      lines[0],
      "host b was the first to fail in 3 starts in a row; the run continues without it for at "
      "least 60 s");
  EXPECT_EQ(names_of(health.present(62)), (Names{"a", "c"}));
  EXPECT_EQ(health.present(64).size(), 3u);
  health.note(kBadB, 1, 64);  // once more is enough, for twice as long
  EXPECT_EQ(names_of(health.present(183)), (Names{"a", "c"}));
  EXPECT_EQ(health.present(185).size(), 3u);
}

TEST(HostHealth, BeginsAnewAfterAStartInWhichAnotherFailedOrAfterLongWork) {
  HostHealth health(kHosts, kFewer);
  const StartEnd bad_a = ended({{1, 139}, {0, 6}, {2, 6}, {3, 6}, {4, 6}, {5, 6}});
  health.note(kBadB, 1, 1);
  health.note(kBadB, 1, 2);
  health.note(bad_a, 1, 3);
  EXPECT_TRUE(health.note(kBadB, 1, 4).lines.empty());
  EXPECT_TRUE(health.note(kBadB, 1, 5).lines.empty());
  EXPECT_TRUE(health.note(kBadB, 4000, 4005).lines.empty());
  EXPECT_EQ(health.present(4006).size(), 3u);
}

TEST(HostHealth, CountsHostsThatDoNotAnswerAndRanksThatStandStill) {
  HostHealth health(kHosts, kFewer);
  StartEnd silent = ended({{0, 6}, {1, 6}, {2, 6}, {3, 6}});
  silent.lost_hosts = {"c"};
  StartEnd stuck = ended({{0, 6}, {1, 6}, {2, 6}, {3, 6}, {4, 6}, {5, 6}});
  EXPECT_EQ(first_to_fail(stuck), nullptr) << "nobody knows whose fault it was";
  stuck.stuck_rank = 4;
  health.note(silent, 1, 1);
  health.note(stuck, 1, 2);
  EXPECT_EQ(health.note(silent, 1, 3).lines.size(), 1u);
  EXPECT_EQ(names_of(health.present(4)), (Names{"a", "b"}));
}

TEST(HostHealth, OnlyNamesAHostThatTheRunNeeds) {
  for (const bool fewer : {false, true}) {
    HostHealth health({{"a", 0}, {"b", 2}}, {.ranks = 2, .fewer = fewer});
    health.note(kBadB, 1, 1);
    health.note(kBadB, 1, 2);
    const auto [lines, left_out] = health.note(kBadB, 1, 3);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_FALSE(left_out);
    EXPECT_NE(lines[0].find(fewer ? "too few slots" : "without --allow-fewer"), std::string::npos);
    EXPECT_EQ(health.present(4).size(), 2u);
  }
}

TEST(HostHealth, TakesAllHostsAgainIfTooFewAnswer) {
  HostHealth health(kHosts, kFewer);
  for (const double now : {1., 2., 3.}) health.note(kBadB, 1, now);
  EXPECT_EQ(health.present(4).size(), 2u);
  StartEnd none;
  none.lost_hosts = {"a", "c"};
  health.note(none, 1, 5);
  EXPECT_EQ(health.present(6).size(), 3u);
}

TEST(HostHealth, GoesOnWithoutADrainedHost) {
  HostHealth health(kHosts, kFewer);
  StartEnd end = ended({{0, 75}, {1, 75}, {2, 75}, {3, 75}, {4, 75}, {5, 75}});
  EXPECT_TRUE(health.drained(end, 1).empty()) << "a time limit";
  end.signalled = {3};
  end.drained = health.drained(end, 1);
  EXPECT_EQ(end.drained, Names{"b"});
  EXPECT_TRUE(decide(end).again);
  EXPECT_EQ(decide(end).code, 75) << "if there is no other start";
  EXPECT_EQ(health.note(end, 1, 1).lines.size(), 1u);
  EXPECT_EQ(names_of(health.present(2)), (Names{"a", "c"}));
  EXPECT_EQ(health.present(62).size(), 3u);
}

TEST(HostHealth, EndsIfAllHostsOrLaunchAreAskedToStop) {
  StartEnd end = ended({{0, 75}, {1, 75}, {2, 75}, {3, 75}, {4, 75}, {5, 75}});
  end.signalled = {0, 2, 4};
  EXPECT_TRUE(HostHealth(kHosts, kFewer).drained(end, 1).empty());
  EXPECT_FALSE(decide(end).again);
  end.signalled = {0};
  EXPECT_TRUE(HostHealth(kHosts, {.ranks = 6}).drained(end, 1).empty());
  end.stop_requested = true;
  EXPECT_TRUE(HostHealth(kHosts, kFewer).drained(end, 1).empty());
  end.drained = {"a"};
  EXPECT_FALSE(decide(end).again);
}

TEST(HostHealth, TakesATermThatCameTooEarlyForADrain) {
  HostHealth health(kHosts, kFewer);
  StartEnd end = ended({{2, 143}, {3, 143}, {0, 6}, {1, 6}, {4, 6}, {5, 6}});
  end.drained = health.drained(end, 1);
  EXPECT_EQ(end.drained, Names{"b"});
}

TEST(FirstSteps, EndWhatFailsThreeTimesBeforeThem) {
  FirstSteps first;
  const StartEnd end = ended({{0, 6}, {1, 139}, {2, 6}, {3, 6}});
  EXPECT_FALSE(first.note(end));
  EXPECT_FALSE(first.note(end));
  const auto rank = first.note(end);
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->rank, 1);
}

TEST(FirstSteps, CountRanksThatStandStillOrLeave) {
  FirstSteps still, leave, meet;
  StartEnd stuck = ended({{0, 6}, {2, 6}});
  stuck.stuck_rank = 2;
  const StartEnd left = ended({{0, 0}, {2, 0}}), never_met = ended({{1, 6}, {0, 6}});
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(still.note(stuck));
    EXPECT_FALSE(leave.note(left));
    EXPECT_FALSE(meet.note(never_met));
  }
  EXPECT_EQ(still.note(stuck)->rank, 2);
  EXPECT_TRUE(leave.note(left));
  EXPECT_TRUE(meet.note(never_met)) << "on a single host";
}

TEST(FirstSteps, CountOnlyTheSameRank) {
  FirstSteps first;
  for (const int rank : {0, 1, 2, 1, 0}) EXPECT_FALSE(first.note(ended({{rank, 137}, {3, 6}})));
  // All crash, each time another one first.
  EXPECT_FALSE(first.note(ended({{0, 139}, {1, 139}})));
  EXPECT_TRUE(first.note(ended({{1, 139}, {0, 139}})));
}

TEST(FirstSteps, AreForgottenAfterAStepAndDoNotCountMachines) {
  FirstSteps first;
  StartEnd end = ended({{0, 6}, {1, 70}}), stepped = end, lost = end;
  stepped.made_steps = true;
  lost.lost_hosts = {"c"};
  EXPECT_FALSE(first.note(end));
  EXPECT_FALSE(first.note(end));
  EXPECT_FALSE(first.note(stepped));
  EXPECT_FALSE(first.note(end));
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(first.note(ended({{0, 74}, {1, 74}}))) << "a disk";
    EXPECT_FALSE(first.note(lost));
    EXPECT_FALSE(first.note({})) << "no host answered";
    EXPECT_FALSE(first.note(ended({{0, 6}, {2, 6}}))) << "the network";
  }
  EXPECT_FALSE(first.note(end));
  EXPECT_TRUE(first.note(end)) << "what does not count does not reset";
}

}  // namespace
}  // namespace lockstep::launch
