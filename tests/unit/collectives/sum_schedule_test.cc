// Catches: lanes that are added in another order of the tree, or a buffer overwritten that a later
// pass needs, however many lanes are added at once; more buffers, reads or patterns than stated.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "collectives/layout/sharding.h"
#include "collectives/layout/tree_sum_terms.h"
#include "tests/reference/plain_math.h"

namespace lockstep::collectives {
namespace {

// The sum of a node of the tree, added pair by pair.
float pairwise(const LaneSum& node, const std::vector<float>& lanes) {
  if (node.count == 1) return lanes[static_cast<size_t>(node.first)];
  int left = 1;
  while (2 * left < node.count) left *= 2;
  return pairwise({node.first, left}, lanes) +
         pairwise({node.first + left, node.count - left}, lanes);
}

struct Counts {
  int read = 0, written = 0;  // sums
};

// Runs a schedule on numbers whose sum shows every order of addition.
Counts run(const LaneShares& shares, int rank) {
  std::vector<float> lanes;
  for (int lane = 0; lane < shares.lanes; ++lane)
    lanes.push_back(std::ldexp(static_cast<float>(lane * 37 % 101) + 1, lane * 11 % 23));
  const SumSchedule schedule = shares.schedule(rank);
  std::map<int, std::pair<LaneSum, float>> buffers;
  test::PlainMath math;
  Counts counts;
  for (size_t b = 0; b < schedule.size(); ++b) {
    std::vector<LaneSum> arriving;
    if (shares.order == LaneOrder::kEachSummed) {
      arriving = largest_sums(shares.turn(static_cast<int>(b)), shares.lanes);
    } else if (shares.order == LaneOrder::kTogether) {
      for (int i = 0; i < shares.of(rank).count; ++i) arriving.push_back({shares.of(rank)[i], 1});
    } else {
      const LocalLanes local = shares.of(rank);
      const int first = static_cast<int>(b) * shares.lanes_per_pass;
      for (int i = first; i < std::min(first + shares.lanes_per_pass, local.count); ++i)
        arriving.push_back({local[i], 1});
    }
    EXPECT_EQ(arriving.size(), schedule[b].buffers.size());
    for (size_t i = 0; i < arriving.size(); ++i) {
      EXPECT_FALSE(buffers.contains(schedule[b].buffers[i])) << "a sum that is still needed";
      buffers[schedule[b].buffers[i]] = {arriving[i], pairwise(arriving[i], lanes)};
    }
    for (const SumSchedule::Pass& pass : schedule[b].passes) {
      std::vector<float> values;
      for (size_t i = 0; i < pass.terms.size(); ++i) {
        EXPECT_EQ(buffers[pass.buffers[i]].first, pass.terms[i]);
        values.push_back(buffers[pass.buffers[i]].second);
        buffers.erase(pass.buffers[i]);
      }
      std::vector<const void*> arrays;
      for (const float& value : values) arrays.push_back(&value);
      float sum = 0;
      math.tree_sum({.arrays = arrays.data(),
                     .count = static_cast<int>(arrays.size()),
                     .joins = pass.balanced ? nullptr : pass.joins.data()},
                    &sum,
                    1);
      EXPECT_EQ(sum, pairwise(pass.sum, lanes));
      EXPECT_FALSE(buffers.contains(pass.into)) << "a sum that is still needed";
      buffers[pass.into] = {pass.sum, sum};
      counts.read += static_cast<int>(values.size());
      ++counts.written;
    }
    EXPECT_LE(static_cast<int>(buffers.size()), schedule.buffers());
  }
  const std::vector<LaneSum>& sums = schedule.sums();
  EXPECT_EQ(buffers.size(), sums.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(buffers[static_cast<int>(i)].first, sums[i]) << "sums lie in the first buffers";
    EXPECT_EQ(buffers[static_cast<int>(i)].second, pairwise(sums[i], lanes));
  }
  return counts;
}

TEST(SumSchedule, EveryWidthHasTheBitsOfPairs) {
  for (const LaneOrder order : {LaneOrder::kInTurn, LaneOrder::kTogether, LaneOrder::kEachSummed}) {
    for (int lanes = 1; lanes <= 40; ++lanes) {
      for (const int ranks : {1, 2, 3, 4, 5, 7, 8}) {
        if (ranks > lanes) continue;
        for (const int width : {2, 4, 8}) {
          const LaneShares shares = {
              .lanes = lanes, .ranks = ranks, .order = order, .width = width};
          const int schedules = order == LaneOrder::kEachSummed ? 1 : ranks;
          for (int rank = 0; rank < schedules; ++rank) {
            SCOPED_TRACE(std::to_string(lanes) + " lanes, rank " + std::to_string(rank) + " of " +
                         std::to_string(ranks) + ", width " + std::to_string(width));
            run(shares, rank);
          }
        }
      }
    }
  }
}

// Lanes that run together are added together, whatever the width.
TEST(SumSchedule, LanesOfAPassHaveTheBitsOfPairs) {
  for (int lanes = 1; lanes <= 40; ++lanes) {
    for (int ranks = 1; ranks <= std::min(lanes, 8); ++ranks) {
      for (const int pass : {2, 3, 4, 8, 64}) {
        for (const int width : {2, 8}) {
          const LaneShares shares = {
              .lanes = lanes, .ranks = ranks, .lanes_per_pass = pass, .width = width};
          for (int rank = 0; rank < ranks; ++rank) {
            SCOPED_TRACE(std::to_string(lanes) + " lanes, rank " + std::to_string(rank) + " of " +
                         std::to_string(ranks) + ", passes of " + std::to_string(pass));
            run(shares, rank);
          }
        }
      }
    }
  }
}

TEST(SumSchedule, WiderPassesReadAndWriteLess) {
  struct Case {
    int lanes, width, buffers, moved;
  };
  // Gradients read and written; in pairs they are 3 (lanes - 1): 21 and 381.
  for (const auto& [lanes, width, buffers, moved] : {Case{8, 2, 4, 15},
                                                     {8, 4, 5, 11},
                                                     {8, 8, 8, 9},
                                                     {128, 2, 8, 255},
                                                     {128, 4, 9, 191},
                                                     {128, 8, 12, 159}}) {
    const LaneShares shares = {.lanes = lanes, .width = width};
    EXPECT_EQ(shares.buffers(), buffers);
    const Counts counts = run(shares, 0);
    EXPECT_EQ(counts.read + counts.written, moved) << lanes << " lanes, width " << width;
  }
}

TEST(SumSchedule, AWiderScheduleTakesFewMoreBuffers) {
  for (int lanes = 1; lanes <= 40; ++lanes) {
    for (int ranks = 1; ranks <= std::min(lanes, 8); ++ranks) {
      LaneShares shares = {.lanes = lanes, .ranks = ranks};
      const int two = shares.buffers();
      shares.width = 4;
      EXPECT_LE(shares.buffers(), two + 1) << lanes << " lanes on " << ranks << " ranks";
      shares.width = 8;
      EXPECT_LE(shares.buffers(), two + 4) << lanes << " lanes on " << ranks << " ranks";
    }
  }
}

// The lanes of a pattern do the same, so that a recording of one of them stands for all.
TEST(SumSchedule, LanesOfAPatternAreAlike) {
  for (int lanes = 1; lanes <= 40; ++lanes) {
    for (const int ranks : {1, 2, 3, 5}) {
      if (ranks > lanes) continue;
      for (const bool begins : {false, true}) {
        const LaneShares shares = {.lanes = lanes, .ranks = ranks, .width = 4};
        for (int rank = 0; rank < ranks; ++rank) {
          const std::vector<int> patterns = shares.lane_patterns(rank, begins);
          const SumSchedule schedule = shares.schedule(rank);
          ASSERT_EQ(patterns.size(), schedule.size());
          for (size_t i = 0; i < patterns.size(); ++i) {
            const auto first = static_cast<size_t>(patterns[i]);
            ASSERT_LE(first, i);
            EXPECT_EQ(patterns[first], patterns[i]);
            EXPECT_EQ(schedule[first].buffers, schedule[i].buffers);
            ASSERT_EQ(schedule[first].passes.size(), schedule[i].passes.size());
            for (size_t p = 0; p < schedule[i].passes.size(); ++p) {
              EXPECT_EQ(schedule[first].passes[p].buffers, schedule[i].passes[p].buffers);
              EXPECT_EQ(schedule[first].passes[p].joins, schedule[i].passes[p].joins);
              EXPECT_EQ(schedule[first].passes[p].into, schedule[i].passes[p].into);
            }
            EXPECT_TRUE(i == 0 || !begins || first > 0);
          }
          EXPECT_EQ(patterns.back(), static_cast<int>(patterns.size()) - 1);
        }
      }
    }
  }
  const auto count = [](int lanes, int width, bool begins) {
    const std::vector<int> patterns =
        LaneShares{.lanes = lanes, .width = width}.lane_patterns(0, begins);
    return std::set<int>(patterns.begin(), patterns.end()).size();
  };
  EXPECT_EQ(count(8, 2, false), 4u);
  EXPECT_EQ(count(8, 4, false), 5u);
  EXPECT_EQ(count(8, 4, true), 6u);
  EXPECT_EQ(count(128, 2, false), 8u);
  EXPECT_EQ(count(128, 4, false), 9u);
  EXPECT_EQ(count(128, 4, true), 10u);
}

TEST(SumSchedule, TermsThatWaitForTheOthersAreFound) {
  const auto chained = [](const std::vector<uint8_t>& joins) {
    const TreeSumTerms terms = {.count = static_cast<int>(joins.size()), .joins = joins.data()};
    const int found = chained_terms(terms);
    return std::pair(found, is_balanced_behind(terms, found));
  };
  EXPECT_EQ(chained({0, 0, 2}), std::pair(1, true));
  EXPECT_EQ(chained({0, 0, 0, 0, 1, 0, 5}), std::pair(3, true));
  EXPECT_EQ(chained({0, 1, 1}), std::pair(0, false));
  EXPECT_EQ(chained({0, 0, 1, 2}), std::pair(1, false));     // 0 + ((1 + 2) + 3)
  EXPECT_EQ(chained({0, 0, 0, 2, 2}), std::pair(1, false));  // 0 + ((1 + (2 + 3)) + 4)
  EXPECT_EQ(chained({0, 0, 2, 1}), std::pair(0, false));
}

}  // namespace
}  // namespace lockstep::collectives
