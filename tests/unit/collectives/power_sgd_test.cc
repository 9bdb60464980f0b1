// Catches: factors or residuals that depend on the number of ranks, a residual that is lost or
// counted twice, what is no matrix rounded or mixed up with what is, columns that never come back.
#include "collectives/power_sgd/power_sgd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "collectives/agree/agreement.h"
#include "collectives/reduce/compressed_exchange.h"
#include "collectives/reduce/step_totals.h"
#include "tests/reference/plain_math.h"
#include "tests/reference/thread_communicator.h"

namespace lockstep::collectives {
namespace {

constexpr int kLanes = 8, kGroups = 4, kRank = 2;
const std::vector<FlatMatrix> kMatrices = {{10, 24, 40}, {1000, 3, 5}, {1020, 64, 16}};
constexpr int64_t kElements = 3072;

PowerSgdLayout layout_of(int groups = kGroups) {
  return power_sgd_layout(kMatrices, kElements, kRank, groups);
}

using Gradient = float (*)(int step, int lane, int64_t i);

float rough(int, int lane, int64_t i) {
  const auto mixed =
      static_cast<uint32_t>(i * 2654435761u + static_cast<uint32_t>(lane) * 40503u) >> 8;
  return static_cast<float>(mixed % 2001) / 1000 - 1;
}
// Two columns span each matrix, whatever the lane.
float thin(int, int lane, int64_t i) {
  const FlatMatrix& matrix = i < 1000 ? kMatrices[0] : kMatrices[2];
  const int64_t row = (i - matrix.offset) / matrix.columns,
                column = (i - matrix.offset) % matrix.columns;
  return static_cast<float>((lane + 1) * (row % 5) * (column % 3) + (row % 7) * (column % 4));
}

struct Outcome {
  std::vector<std::vector<float>> steps;  // the sums of each, of rank 0
  StepTotals totals;                      // of the last
};

Outcome reduce(const Topology& topology, Gradient gradient, int steps, int64_t bucket = 1024) {
  Outcome outcome;
  const int ranks = topology.ranks();
  testing::run_ranks(ranks, [&](Communicator& communicator) {
    const PowerSgdLayout layout = layout_of();
    const LaneShares shares = {.lanes = kLanes, .ranks = ranks, .unit = kLanes / kGroups};
    const int local = shares.of(communicator.rank()).count;
    const auto buckets = make_buckets({0, kElements}, slices(kLanes, ranks), bucket);
    std::vector<float> residuals(static_cast<size_t>(local / shares.unit * kElements)),
        factors(static_cast<size_t>(layout.factor_elements(topology))),
        gradients(static_cast<size_t>(LaneShares{shares.unit}.buffers() * kElements), NAN);
    test::PlainMath math;
    PowerSgd sum({communicator, communicator},
                 math,
                 math,
                 {layout, topology, kElements},
                 {residuals.data(), factors.data()});
    CompressedExchange exchange({.communicators = {communicator, communicator},
                                 .math = math,
                                 .shares = shares,
                                 .topology = topology,
                                 .gradients = {.data = gradients.data(),
                                               .elements = kElements,
                                               .buckets = buckets,
                                               .gradient_buckets = 1}},
                                sum);
    TotalsExchange totals_exchange(communicator, shares);
    for (int step = 0; step < steps; ++step) {
      exchange.begin_step(nullptr);
      sum.begin_step();
      for (int i = 0; i < local; ++i) {
        float* const out = exchange.lane_gradients();
        for (int64_t k = 0; k < kElements; ++k) out[k] = gradient(step, exchange.lanes()[i], k);
        for (size_t b = 0; b < buckets.size(); ++b) exchange.bucket_ready(static_cast<int>(b));
        exchange.end_lane();
      }
      exchange.reduce();
      std::vector<float> sums(gradients.begin(), gradients.begin() + kElements);
      const std::vector<LaneStatistics> statistics(static_cast<size_t>(local));
      const StepTotals totals = totals_exchange.sum(statistics, {.squares = exchange.squares()});
      if (communicator.rank() != 0) continue;
      outcome.steps.push_back(sums);
      outcome.totals = totals;
    }
  });
  return outcome;
}

std::vector<double> exact_sum(Gradient gradient) {
  std::vector<double> sums(kElements);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int64_t i = 0; i < kElements; ++i)
      sums[static_cast<size_t>(i)] += static_cast<double>(gradient(0, lane, i));
  }
  return sums;
}

TEST(PowerSgdLayout, TakesWhatGetsShorter) {
  const PowerSgdLayout layout = layout_of();
  ASSERT_EQ(layout.matrices.size(), 2u);  // 3 x 5 in rank 2 would be longer
  EXPECT_EQ(layout.matrices[0].offset, 10);
  EXPECT_EQ(layout.matrices[1].offset, 1020);
  EXPECT_EQ(layout.matrices[1].left, 24 * kRank);
  EXPECT_EQ(layout.matrices[1].right, 40 * kRank);
  EXPECT_EQ(layout.exact, (std::vector<Range>{{0, 10}, {970, 1020}, {2044, kElements}}));
  EXPECT_EQ(layout.exact_at, (24 + 64) * kRank);
  EXPECT_EQ(layout.left_elements, (24 + 64) * kRank + 10 + 50 + kElements - 2044);
  EXPECT_EQ(layout.right_elements, (40 + 16) * kRank);
  // Zeros after a matrix do not travel, if the matrix is compressed.
  const std::vector<FlatMatrix> padded = {{10, 24, 40, 30}, {1000, 3, 5, 2}};
  EXPECT_EQ(power_sgd_layout(padded, 1100, kRank, 1).exact,
            (std::vector<Range>{{0, 10}, {1000, 1100}}));
}

TEST(PowerSgd, SameBitsOnAnyNumberOfRanksAndBuckets) {
  const Outcome alone = reduce({}, rough, 3);
  for (const Topology& topology :
       {Topology{1, 2}, {1, 4}, {2, 1}, {2, 2}, {4, 1}, {1, 3}, {3, 1}}) {
    for (const int64_t bucket : {512, 4096}) {
      const Outcome many = reduce(topology, rough, 3, bucket);
      for (size_t step = 0; step < alone.steps.size(); ++step)
        EXPECT_EQ(many.steps[step], alone.steps[step]) << topology.ranks() << " ranks, " << step;
    }
    if (kLanes % topology.ranks() != 0)
      continue;  // other buckets, of which the norm is of the first
    EXPECT_EQ(reduce(topology, rough, 3).totals.squared_norm, alone.totals.squared_norm);
  }
}

TEST(PowerSgd, WhatIsNoMatrixIsExact) {
  const Outcome outcome = reduce({1, 2}, rough, 2);
  const std::vector<double> exact = exact_sum(rough);
  for (const Range& range : layout_of().exact) {
    for (auto i = static_cast<size_t>(range.begin); i < static_cast<size_t>(range.end); ++i) {
      for (const auto& sums : outcome.steps) EXPECT_NEAR(sums[i], exact[i], 1e-5) << i;
    }
  }
}

// As many columns as the matrices have directions, from noise to begin with: nothing is left out.
TEST(PowerSgd, ThinMatricesArriveWhole) {
  const std::vector<double> exact = exact_sum(thin);
  for (const auto& sums : reduce({1, 2}, thin, 3).steps) {
    for (size_t i = 0; i < exact.size(); ++i)
      EXPECT_NEAR(sums[i], exact[i], 1e-3 * (1 + std::abs(exact[i]))) << i;
  }
}

// What a step leaves out comes later: the mean of many steps nears the sum.
TEST(PowerSgd, ResidualsArrive) {
  constexpr int kSteps = 120;
  const Outcome outcome = reduce({}, rough, kSteps);
  const std::vector<double> exact = exact_sum(rough);
  const auto error_after = [&](size_t steps) {
    double error = 0, size = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      double mean = 0;
      for (size_t step = 0; step < steps; ++step)
        mean += static_cast<double>(outcome.steps[step][i]) / static_cast<double>(steps);
      error += std::pow(mean - exact[i], 2);
      size += exact[i] * exact[i];
    }
    return std::sqrt(error / size);
  };
  EXPECT_GT(error_after(1), 0.3);  // two of some twenty directions
  EXPECT_LT(error_after(kSteps), 0.15);
}

}  // namespace
}  // namespace lockstep::collectives
