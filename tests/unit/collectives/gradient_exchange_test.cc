// Catches: a sum whose order depends on the number of ranks, a lane or slice that is lost or
// counted twice, a norm that depends on the buckets or keeps what a step before left, and a norm or
// statistic that differs between ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "tests/unit/collectives/gradient_exchange_runs.h"

namespace lockstep::collectives {
namespace {

TEST(GradientExchange, StatisticsAreSummedButNotInTheNorm) {
  const Reduced all = reduce({}, whole_gradient);
  for (int ranks : {1, 2, 8}) {
    const Reduced some =
        reduce(Topology::flat(ranks), whole_gradient, {.steps = 2, .gradient_buckets = 1});
    EXPECT_EQ(some.gradient, all.gradient);
    // Only the first bucket counts.
    double squares = 0;
    const auto buckets = buckets_of({}, 1);
    for (int64_t i = 0; i < buckets[0].end; ++i)
      squares += std::pow(static_cast<double>(all.gradient[static_cast<size_t>(i)]), 2);
    EXPECT_EQ(some.totals.squared_norm, squares) << ranks;
  }
}

TEST(GradientExchange, TreeGivesTheSameBitsOnAnyNumberOfRanksAndNodes) {
  const Reduced alone = reduce({}, rough_gradient);
  for (const Topology& topology : kTopologies) {
    const Reduced many = reduce(topology, rough_gradient);
    SCOPED_TRACE(name_of(topology));
    ASSERT_EQ(many.gradient.size(), alone.gradient.size());
    for (size_t i = 0; i < alone.gradient.size(); ++i)
      ASSERT_EQ(many.gradient[i], alone.gradient[i]) << i;
    EXPECT_EQ(many.totals.loss_sum, alone.totals.loss_sum);
    EXPECT_EQ(many.totals.squared_norm, alone.totals.squared_norm);
    EXPECT_EQ(many.totals.valid_count, alone.totals.valid_count);
  }
}

TEST(GradientExchange, TheNormDoesNotDependOnTheBuckets) {
  const Reduced alone = reduce({}, rough_gradient);
  for (const Topology& topology : {Topology{}, Topology{1, 4}, Topology{2, 4, true}}) {
    for (const int64_t bucket_elements : {1, 2000, 3000, 10'000}) {
      const Reduced other =
          reduce(topology, rough_gradient, {.steps = 2, .bucket_elements = bucket_elements});
      EXPECT_EQ(other.gradient, alone.gradient);
      EXPECT_EQ(other.totals.squared_norm, alone.totals.squared_norm)
          << topology.ranks() << " ranks, " << bucket_elements;
    }
  }
}

// Catches an exchange whose staging another one uses meanwhile.
TEST(GradientExchange, WhatMayBeUnderWayChangesNoBits) {
  constexpr int64_t kBucketElements = 1536;  // the last one is shorter
  const Reduced alone = reduce({}, rough_gradient);
  for (const Topology& topology : kTopologies) {
    for (const int64_t under_way : {kBucketElements, 2 * kBucketElements, kBucketElements + 640}) {
      const Reduced many =
          reduce(topology,
                 rough_gradient,
                 {.steps = 2, .bucket_elements = kBucketElements, .max_in_flight = under_way});
      EXPECT_EQ(many.gradient, alone.gradient) << under_way;
      EXPECT_EQ(many.totals.squared_norm, alone.totals.squared_norm) << under_way;
    }
  }
}

TEST(GradientExchange, SumsGoWhereTheyAreWanted) {
  const Reduced alone = reduce({}, rough_gradient);
  for (const Topology& topology : kTopologies) {
    const Reduced many = reduce(topology, rough_gradient, {.steps = 2, .sums = Sums::kElsewhere});
    EXPECT_EQ(many.gradient, alone.gradient);
    EXPECT_EQ(many.totals.squared_norm, alone.totals.squared_norm);
  }
}

TEST(GradientExchange, RanksOfANodeWriteTheirSumsToEachOther) {
  for (const auto& [wire, groups] :
       {std::pair(DType::kF32, 0), std::pair(DType::kBF16, 0), std::pair(DType::kBF16, 8)}) {
    const auto reduced = [&, wire = wire, groups = groups](const Topology& topology, Sums sums) {
      return reduce(topology,
                    rough_gradient,
                    {.steps = 3,
                     .gradient_buckets = 2,
                     .sums = sums,
                     .wire = wire,
                     .residual_groups = groups});
    };
    const Reduced alone = reduced({}, Sums::kInPlace);
    for (const int ranks : {2, 4, 8}) {
      const Reduced many = reduced({1, ranks, true}, Sums::kEverywhere);
      EXPECT_EQ(many.gradient, alone.gradient) << ranks;
      EXPECT_EQ(many.totals.squared_norm, alone.totals.squared_norm) << ranks;
    }
  }
}

// Every lane across the ranks at once, in memory that the buckets share: the same bits, with zeros
// in the gaps.
TEST(GradientExchange, PackedSumsHaveTheSameBits) {
  const auto buckets = buckets_of({}, 1);
  ASSERT_GT(buckets.size(), static_cast<size_t>(kPlaces));
  for (const bool fast : {false, true}) {
    const auto gradient = fast ? whole_gradient : rough_gradient;
    const Reduced alone = reduce({}, gradient);
    const std::vector<float> wanted = with_gaps(alone.gradient, buckets);
    double norm = -1;
    for (const Topology& topology : kTopologies) {
      if (fast && (topology.nodes > 1 || topology.shares_memory)) continue;
      const Reduced many =
          reduce(topology, gradient, {.fast = fast, .steps = 3, .sums = Sums::kPacked});
      SCOPED_TRACE(name_of(topology));
      EXPECT_EQ(many.gradient, wanted);
      EXPECT_EQ(many.totals.loss_sum, alone.totals.loss_sum);
      EXPECT_EQ(many.totals.valid_count, alone.totals.valid_count);
      if (norm < 0) norm = many.totals.squared_norm;
      EXPECT_EQ(many.totals.squared_norm, norm);
    }
  }
}

// Terms and sums of 16 bits on all topologies and in both orders of lanes and ranks, but not of
// running statistics.
TEST(GradientExchange, RoundedTermsGiveTheSameBits) {
  constexpr size_t kGradientBuckets = 2;
  const auto buckets = buckets_of({}, 1);
  const auto reduced = [&](const Topology& topology, Sums sums, DType wire) {
    return reduce(topology,
                  rough_gradient,
                  {.steps = 2, .gradient_buckets = kGradientBuckets, .sums = sums, .wire = wire});
  };
  const Reduced exact = reduced({}, Sums::kInPlace, DType::kF32),
                alone = reduced({}, Sums::kInPlace, DType::kBF16);
  size_t rounded = 0;
  for (int64_t i = 0; i < kElements; ++i) {
    const float sum = alone.gradient[static_cast<size_t>(i)],
                unrounded = exact.gradient[static_cast<size_t>(i)];
    const bool statistic = i >= buckets[kGradientBuckets].begin;
    ASSERT_EQ(sum, statistic ? unrounded : to_float(round_to<BFloat16>(sum))) << i;
    EXPECT_NEAR(sum, unrounded, 0.02 * 128 * 500) << i;
    rounded += sum != unrounded;
  }
  EXPECT_GT(rounded, 1000u);
  for (const Topology& topology : kTopologies) {
    SCOPED_TRACE(name_of(topology));
    const Reduced many = reduced(topology, Sums::kElsewhere, DType::kBF16);
    EXPECT_EQ(many.gradient, alone.gradient);
    EXPECT_EQ(many.totals.squared_norm, alone.totals.squared_norm);
    EXPECT_EQ(reduced(topology, Sums::kPacked, DType::kBF16).gradient,
              with_gaps(alone.gradient, buckets));
  }
}

// What rounding takes comes back a step later: over many steps the sums are as exact as one, on all
// topologies with the same bits, whatever the groups of lanes that are summed first.
TEST(GradientExchange, ResidualsReturnWhatRoundingTakes) {
  constexpr size_t kGradientBuckets = 2;
  constexpr int kSteps = 12;
  const auto reduced = [&](const Topology& topology, int groups, DType wire, int steps) {
    return reduce(topology,
                  rough_gradient,
                  {.steps = steps,
                   .gradient_buckets = kGradientBuckets,
                   .wire = wire,
                   .residual_groups = groups});
  };
  const Reduced exact = reduced({}, 0, DType::kF32, 1);
  const auto error = [&](const Reduced& outcome) {
    double sum = 0;
    for (size_t i = 0; i < exact.gradient.size(); ++i)
      sum += std::abs(outcome.of_all_steps[i] / kSteps - static_cast<double>(exact.gradient[i]));
    return sum;
  };
  const double lossy = error(reduced({}, 0, DType::kBF16, kSteps));
  ASSERT_GT(lossy, 0);
  for (const int groups : {8, 4}) {
    const Reduced alone = reduced({}, groups, DType::kBF16, kSteps);
    EXPECT_LT(error(alone), 0.4 * lossy) << groups;  // 1 / kSteps of what the first step has lost
    for (const Topology& topology : kTopologies) {
      if (topology.ranks() > groups) continue;
      SCOPED_TRACE(name_of(topology) + std::to_string(groups));
      const Reduced many = reduced(topology, groups, DType::kBF16, kSteps);
      EXPECT_EQ(many.gradient, alone.gradient);
      EXPECT_EQ(many.totals.squared_norm, alone.totals.squared_norm);
    }
  }
}

// What the last rank tells.
struct Told : ExchangeObserver {
  std::map<std::pair<int, size_t>, int> exchanges;  // of a bucket on a level
  std::map<int, int> gathers;
  size_t bytes_exchanged = 0, bytes_gathered = 0;
  double waited_ms = 0;
  bool in_order = true;

  void exchanged(int bucket, size_t bytes, size_t level, double start_ms, double end_ms) override {
    ++exchanges[{bucket, level}];
    bytes_exchanged += bytes;
    in_order = in_order && start_ms > 0 && start_ms <= end_ms;
  }
  void gathered(int bucket, size_t bytes, double start_ms, double end_ms) override {
    ++gathers[bucket];
    bytes_gathered += bytes;
    in_order = in_order && start_ms > 0 && start_ms <= end_ms;
  }
  void waited(Wait, int, double start_ms, double end_ms) override {
    waited_ms += end_ms - start_ms;
  }
};

// Catches an exchange, gather or wait that goes untold or is told twice.
TEST(GradientExchange, TellsOfEveryExchangeGatherAndWait) {
  const int64_t elements = padded_elements(kElements, kLanes);
  const auto bytes = static_cast<size_t>(elements) * sizeof(float);
  const auto buckets = static_cast<int>(buckets_of({}, 1).size());
  for (const Topology& topology : kTopologies) {
    Told told;
    const Reduced outcome = reduce(topology, rough_gradient, {.observer = &told});
    const size_t levels = topology.groups_of(0).size();
    SCOPED_TRACE(std::to_string(topology.nodes) + " x " + std::to_string(topology.per_node));
    EXPECT_EQ(told.exchanges.size(), static_cast<size_t>(buckets) * levels);
    for (const auto& [which, count] : told.exchanges) EXPECT_EQ(count, 1) << which.first;
    EXPECT_EQ(told.gathers.size(), static_cast<size_t>(buckets));
    for (const auto& [bucket, count] : told.gathers) EXPECT_EQ(count, 1) << bucket;
    // What the second level exchanges is the part that the first one summed.
    const size_t parts = levels == 2 ? bytes / static_cast<size_t>(topology.per_node) : 0;
    EXPECT_EQ(told.bytes_exchanged, bytes + parts);
    EXPECT_EQ(told.bytes_gathered, bytes);
    EXPECT_TRUE(told.in_order);
    EXPECT_NEAR(told.waited_ms, outcome.exposed_ms, 1e-9);
  }
}

TEST(GradientExchange, SumsEveryLaneOnce) {
  for (const bool fast : {false, true}) {
    for (int ranks : {1, 2, 4, 8}) {
      const Topology topology = {1, ranks, ranks > 1 && !fast};
      const Reduced outcome = reduce(topology, whole_gradient, {.fast = fast, .steps = 3});
      for (size_t i = 0; i < outcome.gradient.size(); ++i)
        ASSERT_EQ(outcome.gradient[i], 36.0f * static_cast<float>(i % 7))
            << ranks << " ranks, element " << i;
      double norm = 0;
      for (float g : outcome.gradient) norm += static_cast<double>(g) * g;
      EXPECT_DOUBLE_EQ(outcome.totals.squared_norm, norm);
      EXPECT_EQ(outcome.totals.valid_count, 36);  // 1 + 2 + ... + 8
      EXPECT_EQ(outcome.totals.correct_count, 16);
      EXPECT_EQ(outcome.totals.top5_count, 80);  // 3 + 5 + ... + 17
      EXPECT_EQ(outcome.totals.flags, ranks == 1 ? 4 : 5);
      EXPECT_EQ(outcome.totals.slowest_ms, 9 + ranks);
      EXPECT_EQ(outcome.totals.slowest_rank, ranks - 1);
      EXPECT_EQ(outcome.totals.fastest_ms, 10);
    }
  }
}

}  // namespace
}  // namespace lockstep::collectives
