// Catches: bits that depend on the number of ranks or of lanes where these are no powers of two, or
// on how many lanes are added at once; a tree of another form, a lane that uneven shares lose.
#include <gtest/gtest.h>

#include <bit>
#include <functional>

#include "tests/unit/collectives/gradient_exchange_runs.h"

namespace lockstep::collectives {
namespace {

// Any number of lanes on any number of ranks, in turn, together, or each summed at once.
TEST(GradientExchange, AnyNumberOfLanesAndRanksGivesTheSameBits) {
  const std::vector<Topology> topologies = {{1, 2},
                                            {1, 3},
                                            {1, 5},
                                            {1, 6},
                                            {3, 1},
                                            {7, 1},
                                            {2, 3},
                                            {3, 2},
                                            {1, 3, true},
                                            {1, 6, true},
                                            {1, 7, true},
                                            {2, 3, true},
                                            {3, 2, true},
                                            {2, 2, true}};
  for (const int lanes : {3, 6, 7, 8, 12, 13, 24}) {
    for (const DType wire : {DType::kF32, DType::kBF16}) {
      const auto reduced = [&](const Topology& topology, Sums sums, bool together = false) {
        return reduce(topology,
                      rough_gradient,
                      {.lanes = lanes,
                       .steps = 2,
                       .sums = sums,
                       .wire = wire,
                       .together = together,
                       .width = topology.ranks() == 1       ? 2
                                : topology.ranks() % 3 == 0 ? 8
                                                            : 4});
      };
      const Reduced alone = reduced({}, Sums::kInPlace);
      EXPECT_EQ(reduced({}, Sums::kInPlace, true).gradient, alone.gradient);
      for (const Topology& topology : topologies) {
        if (topology.ranks() > lanes) continue;
        SCOPED_TRACE(name_of(topology) + std::to_string(lanes) + " lanes");
        for (const bool together : {false, true}) {
          const Reduced many = reduced(topology, Sums::kInPlace, together);
          EXPECT_EQ(many.gradient, alone.gradient);
          EXPECT_EQ(many.totals.loss_sum, alone.totals.loss_sum);
          EXPECT_EQ(many.totals.squared_norm, alone.totals.squared_norm);
        }
        const Reduced packed = reduced(topology, Sums::kPacked);
        EXPECT_EQ(packed.gradient,
                  with_gaps(alone.gradient, buckets_of({.lanes = lanes}, topology.ranks())));
        EXPECT_EQ(packed.totals.valid_count, alone.totals.valid_count);
        if (topology.nodes > 1 || !topology.shares_memory) continue;
        EXPECT_EQ(reduced(topology, Sums::kEverywhere).gradient, alone.gradient);
      }
    }
  }
}

// The sum of a node over several lanes is that of its two halves, of which the left one is the
// largest power of two.
TEST(GradientExchange, TheTreeIsLeftComplete) {
  const std::function<float(int, int, int64_t)> sum = [&](int first, int count, int64_t i) {
    if (count == 1) return rough_gradient(first, i);
    const auto left = static_cast<int>(std::bit_floor(static_cast<unsigned>(count - 1)));
    return sum(first, left, i) + sum(first + left, count - left, i);
  };
  for (const int lanes : {5, 6, 7, 12, 13}) {
    const Reduced outcome = reduce({1, 3}, rough_gradient, {.lanes = lanes});
    for (int64_t i = 0; i < kElements; ++i)
      ASSERT_EQ(outcome.gradient[static_cast<size_t>(i)], sum(0, lanes, i)) << lanes << " " << i;
  }
}

// The rows of tables are added to the sums in the order of the lanes, wherever a part of a table
// ends, and before the squares are summed.
TEST(GradientExchange, RowsAreAddedInTheOrderOfTheLanes) {
  for (const int lanes : {1, 6, 7, 8}) {
    const auto reduced = [&](const Topology& topology, Sums sums, bool together, bool rows) {
      return reduce(topology,
                    rough_gradient,
                    {.lanes = lanes, .steps = 2, .sums = sums, .together = together, .rows = rows});
    };
    Reduced expected = reduced({}, Sums::kInPlace, false, false);
    for (int lane = 0; lane < lanes; ++lane) {
      for (int64_t i = 0; i < kRowTable.lane_rows * kRowTable.columns; ++i)
        expected.gradient[static_cast<size_t>(
            kRowTable.offset + row_id(lane, i / kRowTable.columns) * kRowTable.columns +
            i % kRowTable.columns)] += row_gradient(lane, i);
    }
    const Reduced alone = reduced({}, Sums::kInPlace, false, true);
    EXPECT_EQ(alone.gradient, expected.gradient);
    EXPECT_NE(alone.totals.squared_norm, expected.totals.squared_norm);
    for (const Topology& topology : {Topology{1, 2},
                                     {1, 3},
                                     {1, 6},
                                     {3, 1},
                                     {2, 3},
                                     {1, 3, true},
                                     {2, 2, true},
                                     {3, 2, true}}) {
      if (topology.ranks() > lanes) continue;
      SCOPED_TRACE(name_of(topology) + std::to_string(lanes) + " lanes");
      for (const bool together : {false, true}) {
        const Reduced many = reduced(topology, Sums::kInPlace, together, true);
        EXPECT_EQ(many.gradient, alone.gradient);
        EXPECT_EQ(many.totals.squared_norm, alone.totals.squared_norm);
      }
      const auto buckets = buckets_of({.lanes = lanes}, topology.ranks());
      EXPECT_EQ(with_gaps(reduced(topology, Sums::kPacked, false, true).gradient, buckets),
                with_gaps(alone.gradient, buckets));
      if (topology.nodes > 1 || !topology.shares_memory) continue;
      EXPECT_EQ(reduced(topology, Sums::kEverywhere, false, true).gradient, alone.gradient);
    }
  }
}

TEST(GradientExchange, TheLibrarySumsAllLanesOnAnyNumberOfRanks) {
  for (const int lanes : {7, 12}) {
    const Reduced alone = reduce({}, whole_gradient, {.lanes = lanes});
    for (const int ranks : {2, 3, 5, 7}) {
      for (const Sums sums : {Sums::kInPlace, Sums::kPacked}) {
        const Reduced many = reduce(
            {1, ranks}, whole_gradient, {.lanes = lanes, .fast = true, .steps = 2, .sums = sums});
        EXPECT_EQ(many.gradient,
                  sums == Sums::kPacked
                      ? with_gaps(alone.gradient, buckets_of({.lanes = lanes}, ranks))
                      : alone.gradient)
            << lanes << " lanes, " << ranks << " ranks";
      }
    }
  }
}

TEST(GradientExchange, ResidualsAreTheSameOnAnyNumberOfRanks) {
  for (const auto& [lanes, groups] : {std::pair(12, 12), std::pair(12, 6), std::pair(14, 7)}) {
    const auto reduced = [&, lanes = lanes, groups = groups](const Topology& topology) {
      return reduce(topology,
                    rough_gradient,
                    {.lanes = lanes,
                     .steps = 4,
                     .wire = DType::kBF16,
                     .residual_groups = groups,
                     .width = topology.ranks() == 1 ? 2 : 4});
    };
    const Reduced alone = reduced({});
    for (const Topology& topology :
         {Topology{1, 2}, {1, 3}, {1, 5}, {3, 1}, {2, 3}, {3, 2}, {2, 3, true}, {1, 6, true}}) {
      EXPECT_EQ(reduced(topology).gradient, alone.gradient) << name_of(topology) << lanes;
    }
  }
}

}  // namespace
}  // namespace lockstep::collectives
