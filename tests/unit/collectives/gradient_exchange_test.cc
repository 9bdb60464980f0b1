// Catches: a sum whose order depends on the number of ranks, a lane or slice that is lost or
// counted twice, a norm that depends on the buckets or keeps what a step before left, and a norm or
// statistic that differs between ranks.
#include "collectives/reduce/gradient_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

#include "collectives/agreement.h"
#include "collectives/gather/bucket_all_gather.h"
#include "collectives/reduce/lane_exchange.h"
#include "collectives/reduce/library_exchange.h"
#include "collectives/reduce/step_totals.h"
#include "collectives/reduce/tree_exchange.h"
#include "runtime/base/half.h"
#include "tests/reference/plain_math.h"
#include "tests/reference/thread_communicator.h"

namespace lockstep {
namespace {

constexpr int kLanes = 8;

// Gradient of element i in lane `lane`: values of very different sizes, so that any other order of
// addition shows.
float rough_gradient(int lane, int64_t i) {
  const uint32_t mixed =
      static_cast<uint32_t>(i * 2654435761u + static_cast<uint32_t>(lane) * 40503u);
  return std::ldexp(static_cast<float>(mixed % 1000) - 500, static_cast<int>(mixed >> 28) - 8);
}
float whole_gradient(int lane, int64_t i) {
  return static_cast<float>(lane + 1) * static_cast<float>(i % 7);
}

struct Outcome {
  std::vector<float> gradient;  // of the whole buffer, gathered
  StepTotals totals;
  double exposed_ms = 0;  // of the last rank, in the last step and the gather after it
  std::vector<double> of_all_steps = {};  // of one rank, summed
};

enum class Sums { kInPlace, kElsewhere, kPacked, kEverywhere };

// Three places for the buckets, which take them in turns; each ends in a gap.
constexpr int kPlaces = 3;
constexpr int64_t kGap = 5;

struct Setup {
  int lanes = kLanes;
  bool fast = false;
  int steps = 1;
  size_t gradient_buckets = ~size_t{0};
  Sums sums = Sums::kInPlace;
  ExchangeObserver* observer = nullptr;
  DType wire = DType::kF32;
  int64_t bucket_elements = 1200;
  int64_t max_in_flight = 0;
  int residual_groups = 0;
  bool together = false;
};

constexpr int64_t kElements = 5000;

std::vector<Range> buckets_of(const Setup& setup, int ranks) {
  const int parts = slices(setup.lanes, ranks);
  return make_buckets({0, padded_elements(kElements, parts)}, parts, setup.bucket_elements);
}

std::unique_ptr<GradientExchange> make_exchange(const GradientExchangeSetup& exchange,
                                                const Setup& setup,
                                                const Topology& topology,
                                                const StagingMemory& staging,
                                                uint16_t* residuals) {
  if (setup.fast && topology.ranks() > 1)
    return std::make_unique<LibraryExchange>(exchange, staging);
  if (exchange.shares.order == LaneOrder::kEachSummed)
    return std::make_unique<LaneExchange>(exchange, LaneExchange::Options{staging, setup.wire});
  return std::make_unique<TreeExchange>(
      exchange,
      TreeExchange::Options{staging,
                            {setup.wire, setup.residual_groups > 0 ? residuals : nullptr},
                            setup.sums == Sums::kEverywhere});
}

Outcome reduce(const Topology& topology, float (*gradient)(int, int64_t), const Setup& setup = {}) {
  const int ranks = topology.ranks();
  const auto buckets = buckets_of(setup, ranks);
  const int64_t elements = buckets.back().end;
  Outcome outcome;
  testing::run_ranks(ranks, [&](Communicator& communicator) {
    const bool packed = setup.sums == Sums::kPacked && ranks > 1;
    const bool elsewhere = packed || (setup.sums == Sums::kElsewhere && ranks > 1);
    const LaneShares shares = {
        .lanes = setup.lanes,
        .ranks = ranks,
        .unit = setup.residual_groups > 0 ? setup.lanes / setup.residual_groups : 1,
        .order = packed           ? LaneOrder::kEachSummed
                 : setup.together ? LaneOrder::kTogether
                                  : LaneOrder::kInTurn};
    const int64_t place = largest_bucket(buckets);
    const auto buffers =
        static_cast<size_t>(packed ? kPlaces * place : shares.buffers() * elements);
    std::vector<float> own_gradients(buffers, NAN), own_whole(static_cast<size_t>(elements), NAN);
    float *gradients = own_gradients.data(), *whole = own_whole.data();
    std::unique_ptr<NodeMemory> node;
    if (topology.shares_memory) {
      node = NodeMemory::join(communicator, topology);
      node->allocate(buffers * sizeof(float), own_whole.size() * sizeof(float));
      gradients = reinterpret_cast<float*>(node->own());
      whole = reinterpret_cast<float*>(node->common());
      std::fill_n(gradients, buffers, NAN);
    }
    const int64_t under_way =
        setup.max_in_flight > 0 ? setup.max_in_flight : exchanged_elements(buckets, packed);
    const int64_t staging_size =
        setup.fast ? under_way : staging_elements(under_way, topology, shares, setup.wire);
    constexpr size_t kGuard = 64;
    std::vector<float> staging(static_cast<size_t>(staging_size) + kGuard, -7.0f);
    std::vector<float> sums(own_whole.size() * (packed ? static_cast<size_t>(shares.buffers()) : 1),
                            NAN);
    std::vector<int64_t> offsets;
    std::vector<std::vector<Range>> gaps;
    for (size_t b = 0; packed && b < buckets.size(); ++b) {
      offsets.push_back(static_cast<int64_t>(b % kPlaces) * place);
      gaps.push_back({{buckets[b].end - kGap, buckets[b].end}});
    }
    std::vector<uint16_t> residuals;
    if (setup.residual_groups > 0)
      residuals.resize(static_cast<size_t>(
          ErrorFeedbackLayout(shares, topology, communicator.rank(), elements).elements()));
    std::vector<double> of_all_steps(own_whole.size());
    test::PlainMath math;
    // An order of need that is not that of the buckets.
    std::vector<int> order(buckets.size());
    std::iota(order.rbegin(), order.rend(), 0);
    const GradientExchangeSetup exchange_setup = {
        .communicators = {communicator, communicator, node.get()},
        .math = math,
        .shares = shares,
        .topology = topology,
        .gradients = {.data = gradients,
                      .elements = packed ? kPlaces * place : elements,
                      .buckets = buckets,
                      .gradient_buckets = setup.gradient_buckets,
                      .offsets = offsets,
                      .gaps = gaps},
        .sums = {elsewhere ? sums.data() : nullptr, packed}};
    const auto exchange = make_exchange(
        exchange_setup, setup, topology, {staging.data(), under_way}, residuals.data());
    TotalsExchange totals_exchange(communicator, shares);
    if (setup.observer != nullptr && communicator.rank() == ranks - 1) {
      exchange->observe(setup.observer);
      totals_exchange.observe(setup.observer);
    }
    StepTotals totals;
    for (int step = 0; step < setup.steps; ++step) {
      std::vector<LaneStatistics> statistics;
      exchange->begin_step(nullptr);
      totals_exchange.begin_step();
      for (int i = 0; i < exchange->turns(); ++i) {
        const bool idle = i >= exchange->lanes().count;
        const int lane = exchange->lanes()[i];
        if (setup.together) exchange->select_lane(i);
        float* out = exchange->lane_gradients();
        for (size_t b = 0; b < buckets.size(); ++b) {
          const int64_t to = packed ? offsets[b] - buckets[b].begin : 0;
          const int64_t end = buckets[b].end - (packed ? kGap : 0);
          if (packed) exchange->bucket_begins(static_cast<int>(b));
          for (int64_t k = buckets[b].begin; k < end && !idle; ++k)
            out[to + k] = k < kElements ? gradient(lane, k) : 0;
          exchange->bucket_ready(static_cast<int>(b));
        }
        if (!idle) statistics.push_back({{0.1 * lane, 1.0 + lane, 2.0, 3.0 + 2 * lane}});
        if (!setup.together || i + 1 == exchange->turns()) exchange->end_lane();
      }
      exchange->reduce();
      totals = totals_exchange.sum(statistics,
                                   {.flags = communicator.rank() == ranks - 1 ? 4 : 1,
                                    .busy_ms = 10.0 + communicator.rank(),
                                    .squares = exchange->squares()});
      for (size_t i = 0; ranks == 1 && i < of_all_steps.size(); ++i)
        of_all_steps[i] += static_cast<double>(exchange->sums().data[i]);
    }
    for (size_t i = staging.size() - kGuard; i < staging.size(); ++i) EXPECT_EQ(staging[i], -7.0f);
    if (setup.sums == Sums::kEverywhere && ranks > 1) {
      for (int rank = 0; rank < ranks; ++rank) {  // the same in all
        const float* const of_rank = reinterpret_cast<float*>(node->piece(rank));
        EXPECT_EQ(std::memcmp(of_rank, gradients, own_whole.size() * sizeof(float)), 0) << rank;
      }
      if (communicator.rank() == ranks - 1) outcome = {{gradients, gradients + kElements}, totals};
      run_on_all(communicator, [] {});  // nobody reads a rank's memory any more
      return;
    }
    // Only what this rank owns, so that all else must come from the others.
    int64_t owned = 0;
    for (const Range& mine : owned_ranges(buckets, topology.part_of(communicator.rank()), ranks)) {
      std::copy_n(exchange->sums().at(mine.begin, owned), mine.size(), whole + mine.begin);
      owned += mine.size();
    }
    BucketAllGather gather({communicator, communicator, node.get()},
                           math,
                           topology,
                           buckets,
                           {.gathered = reinterpret_cast<std::byte*>(whole)});
    std::vector<GatherItem> items;
    for (int bucket : order)
      items.push_back(
          {bucket,
           static_cast<size_t>(buckets[static_cast<size_t>(bucket)].begin) * sizeof(float)});
    if (setup.observer != nullptr && communicator.rank() == ranks - 1)
      gather.observe(setup.observer);
    gather.start(items);
    for (size_t i = 0; i < items.size(); ++i) gather.wait_for(i + 1);
    if (communicator.rank() == ranks - 1)
      outcome = {{whole, whole + kElements},
                 totals,
                 exchange->exposed_ms() + totals_exchange.exposed_ms() + gather.exposed_ms(),
                 of_all_steps};
    run_on_all(communicator, [] {});  // nobody reads a rank's memory any more
  });
  return outcome;
}

// With zeros where packed buckets end in a gap.
std::vector<float> with_gaps(std::vector<float> gradient, const std::vector<Range>& buckets) {
  for (const Range& bucket : buckets) {
    for (int64_t i = bucket.end - kGap; i < std::min(bucket.end, kElements); ++i)
      gradient[static_cast<size_t>(i)] = 0;
  }
  return gradient;
}

TEST(GradientExchange, StatisticsAreSummedButNotInTheNorm) {
  const Outcome all = reduce({}, whole_gradient);
  for (int ranks : {1, 2, 8}) {
    const Outcome some =
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

// Nodes x ranks on each, and whether those share memory.
const std::vector<Topology> kTopologies = {{1, 2},
                                           {1, 4},
                                           {1, 8},
                                           {2, 1},
                                           {2, 2},
                                           {2, 4},
                                           {4, 1},
                                           {4, 2},
                                           {8, 1},
                                           {1, 2, true},
                                           {1, 4, true},
                                           {1, 8, true},
                                           {2, 2, true},
                                           {2, 4, true},
                                           {4, 2, true}};

std::string name_of(const Topology& topology) {
  return std::to_string(topology.nodes) + " x " + std::to_string(topology.per_node) +
         (topology.shares_memory ? ", shared memory " : " ");
}

TEST(GradientExchange, TreeGivesTheSameBitsOnAnyNumberOfRanksAndNodes) {
  const Outcome alone = reduce({}, rough_gradient);
  for (const Topology& topology : kTopologies) {
    const Outcome many = reduce(topology, rough_gradient);
    SCOPED_TRACE(name_of(topology));
    ASSERT_EQ(many.gradient.size(), alone.gradient.size());
    for (size_t i = 0; i < alone.gradient.size(); ++i)
      ASSERT_EQ(many.gradient[i], alone.gradient[i]) << i;
    EXPECT_EQ(many.totals.loss_sum, alone.totals.loss_sum);
    EXPECT_EQ(many.totals.squared_norm, alone.totals.squared_norm);
    EXPECT_EQ(many.totals.valid_count, alone.totals.valid_count);
  }
}

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
        return reduce(
            topology,
            rough_gradient,
            {.lanes = lanes, .steps = 2, .sums = sums, .wire = wire, .together = together});
      };
      const Outcome alone = reduced({}, Sums::kInPlace);
      EXPECT_EQ(reduced({}, Sums::kInPlace, true).gradient, alone.gradient);
      for (const Topology& topology : topologies) {
        if (topology.ranks() > lanes) continue;
        SCOPED_TRACE(name_of(topology) + std::to_string(lanes) + " lanes");
        for (const bool together : {false, true}) {
          const Outcome many = reduced(topology, Sums::kInPlace, together);
          EXPECT_EQ(many.gradient, alone.gradient);
          EXPECT_EQ(many.totals.loss_sum, alone.totals.loss_sum);
          EXPECT_EQ(many.totals.squared_norm, alone.totals.squared_norm);
        }
        const Outcome packed = reduced(topology, Sums::kPacked);
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
    const Outcome outcome = reduce({1, 3}, rough_gradient, {.lanes = lanes});
    for (int64_t i = 0; i < kElements; ++i)
      ASSERT_EQ(outcome.gradient[static_cast<size_t>(i)], sum(0, lanes, i)) << lanes << " " << i;
  }
}

TEST(GradientExchange, TheLibrarySumsAllLanesOnAnyNumberOfRanks) {
  for (const int lanes : {7, 12}) {
    const Outcome alone = reduce({}, whole_gradient, {.lanes = lanes});
    for (const int ranks : {2, 3, 5, 7}) {
      for (const Sums sums : {Sums::kInPlace, Sums::kPacked}) {
        const Outcome many = reduce(
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
                    {.lanes = lanes, .steps = 4, .wire = DType::kBF16, .residual_groups = groups});
    };
    const Outcome alone = reduced({});
    for (const Topology& topology :
         {Topology{1, 2}, {1, 3}, {1, 5}, {3, 1}, {2, 3}, {3, 2}, {2, 3, true}, {1, 6, true}}) {
      EXPECT_EQ(reduced(topology).gradient, alone.gradient) << name_of(topology) << lanes;
    }
  }
}

TEST(GradientExchange, TheNormDoesNotDependOnTheBuckets) {
  const Outcome alone = reduce({}, rough_gradient);
  for (const Topology& topology : {Topology{}, Topology{1, 4}, Topology{2, 4, true}}) {
    for (const int64_t bucket_elements : {1, 2000, 3000, 10'000}) {
      const Outcome other =
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
  const Outcome alone = reduce({}, rough_gradient);
  for (const Topology& topology : kTopologies) {
    for (const int64_t under_way : {kBucketElements, 2 * kBucketElements, kBucketElements + 640}) {
      const Outcome many =
          reduce(topology,
                 rough_gradient,
                 {.steps = 2, .bucket_elements = kBucketElements, .max_in_flight = under_way});
      EXPECT_EQ(many.gradient, alone.gradient) << under_way;
      EXPECT_EQ(many.totals.squared_norm, alone.totals.squared_norm) << under_way;
    }
  }
}

TEST(GradientExchange, SumsGoWhereTheyAreWanted) {
  const Outcome alone = reduce({}, rough_gradient);
  for (const Topology& topology : kTopologies) {
    const Outcome many = reduce(topology, rough_gradient, {.steps = 2, .sums = Sums::kElsewhere});
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
    const Outcome alone = reduced({}, Sums::kInPlace);
    for (const int ranks : {2, 4, 8}) {
      const Outcome many = reduced({1, ranks, true}, Sums::kEverywhere);
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
    const Outcome alone = reduce({}, gradient);
    const std::vector<float> wanted = with_gaps(alone.gradient, buckets);
    double norm = -1;
    for (const Topology& topology : kTopologies) {
      if (fast && (topology.nodes > 1 || topology.shares_memory)) continue;
      const Outcome many =
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
  const Outcome exact = reduced({}, Sums::kInPlace, DType::kF32),
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
    const Outcome many = reduced(topology, Sums::kElsewhere, DType::kBF16);
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
  const Outcome exact = reduced({}, 0, DType::kF32, 1);
  const auto error = [&](const Outcome& outcome) {
    double sum = 0;
    for (size_t i = 0; i < exact.gradient.size(); ++i)
      sum += std::abs(outcome.of_all_steps[i] / kSteps - static_cast<double>(exact.gradient[i]));
    return sum;
  };
  const double lossy = error(reduced({}, 0, DType::kBF16, kSteps));
  ASSERT_GT(lossy, 0);
  for (const int groups : {8, 4}) {
    const Outcome alone = reduced({}, groups, DType::kBF16, kSteps);
    EXPECT_LT(error(alone), 0.4 * lossy) << groups;  // 1 / kSteps of what the first step has lost
    for (const Topology& topology : kTopologies) {
      if (topology.ranks() > groups) continue;
      SCOPED_TRACE(name_of(topology) + std::to_string(groups));
      const Outcome many = reduced(topology, groups, DType::kBF16, kSteps);
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
    const Outcome outcome = reduce(topology, rough_gradient, {.observer = &told});
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
      const Outcome outcome = reduce(topology, whole_gradient, {.fast = fast, .steps = 3});
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
}  // namespace lockstep
