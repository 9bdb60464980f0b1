#pragma once
// Runs an exchange of gradients on ranks that are threads, for tests.

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

#include "collectives/agree/agreement.h"
#include "collectives/gather/bucket_all_gather.h"
#include "collectives/reduce/lane_exchange.h"
#include "collectives/reduce/library_exchange.h"
#include "collectives/reduce/step_totals.h"
#include "collectives/reduce/tree_exchange.h"
#include "runtime/base/half.h"
#include "tests/reference/plain_math.h"
#include "tests/reference/thread_communicator.h"

namespace lockstep::collectives {

inline constexpr int kLanes = 8;

// Gradient of element i in lane `lane`: values of very different sizes, so that any other order of
// addition shows.
inline float rough_gradient(int lane, int64_t i) {
  const uint32_t mixed =
      static_cast<uint32_t>(i * 2654435761u + static_cast<uint32_t>(lane) * 40503u);
  return std::ldexp(static_cast<float>(mixed % 1000) - 500, static_cast<int>(mixed >> 28) - 8);
}
inline float whole_gradient(int lane, int64_t i) {
  return static_cast<float>(lane + 1) * static_cast<float>(i % 7);
}

struct Reduced {
  std::vector<float> gradient;  // of the whole buffer, gathered
  StepTotals totals;
  double exposed_ms = 0;  // of the last rank, in the last step and the gather after it
  std::vector<double> of_all_steps = {};  // of one rank, summed
};

enum class Sums { kInPlace, kElsewhere, kPacked, kEverywhere };

// Three places for the buckets, which take them in turns; each ends in a gap.
inline constexpr int kPlaces = 3;
inline constexpr int64_t kGap = 5;

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
  bool rows = false;  // those of kRowTable are added
  int width = 2;      // see SumSchedule
};

inline constexpr int64_t kElements = 5000;

// A table that lies in several buckets.
inline constexpr RowTable kRowTable = {
    .offset = 512, .table_rows = 96, .columns = 20, .lane_rows = 7};
inline int32_t row_id(int lane, int64_t token) {
  return static_cast<int32_t>((token * token * 5 + lane % 3) % kRowTable.table_rows);
}
inline float row_gradient(int lane, int64_t i) { return rough_gradient(lane, 9000 + i); }

inline std::vector<Range> buckets_of(const Setup& setup, int ranks) {
  const int parts = slices(setup.lanes, ranks);
  return make_buckets({0, padded_elements(kElements, parts)}, parts, setup.bucket_elements);
}

inline std::unique_ptr<GradientExchange> make_exchange(const GradientExchangeSetup& exchange,
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

inline Reduced reduce(const Topology& topology,
                      float (*gradient)(int, int64_t),
                      const Setup& setup = {}) {
  const int ranks = topology.ranks();
  const auto buckets = buckets_of(setup, ranks);
  const int64_t elements = buckets.back().end;
  Reduced outcome;
  testing::run_ranks(ranks, [&](Communicator& communicator) {
    const bool packed = setup.sums == Sums::kPacked && ranks > 1;
    const bool elsewhere = packed || (setup.sums == Sums::kElsewhere && ranks > 1);
    const LaneShares shares = {
        .lanes = setup.lanes,
        .ranks = ranks,
        .unit = setup.residual_groups > 0 ? setup.lanes / setup.residual_groups : 1,
        .order = packed           ? LaneOrder::kEachSummed
                 : setup.together ? LaneOrder::kTogether
                                  : LaneOrder::kInTurn,
        .width = setup.width};
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
        setup.max_in_flight > 0
            ? setup.max_in_flight
            : exchanged_elements(buckets,
                                 packed ? InFlightLimit::kSavesMemory : InFlightLimit::kUsual);
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
    RowLayout row_layout;
    if (setup.rows) row_layout.append(kRowTable, setup.lanes);
    std::vector<std::byte> rows(row_layout.bytes);
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
        .sums = {elsewhere ? sums.data() : nullptr, packed},
        .rows = {row_layout, rows.data()}};
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
        if (setup.rows && !idle) {
          const GradientExchange::LaneRows place = exchange->lane_rows(0);
          for (int64_t k = 0; k < kRowTable.lane_rows; ++k)
            reinterpret_cast<int32_t*>(place.ids)[k] = row_id(lane, k);
          for (int64_t k = 0; k < kRowTable.lane_rows * kRowTable.columns; ++k)
            reinterpret_cast<float*>(place.rows)[k] = row_gradient(lane, k);
        }
        if (!idle) statistics.push_back({{0.1 * lane, 1.0 + lane, 2.0, 3.0 + 2 * lane}});
        if (!setup.together || i + 1 == exchange->turns()) exchange->end_lane();
      }
      exchange->reduce();
      exchange->add_rows(/*whole=*/setup.sums == Sums::kEverywhere && ranks > 1);
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
inline std::vector<float> with_gaps(std::vector<float> gradient,
                                    const std::vector<Range>& buckets) {
  for (const Range& bucket : buckets) {
    for (int64_t i = bucket.end - kGap; i < std::min(bucket.end, kElements); ++i)
      gradient[static_cast<size_t>(i)] = 0;
  }
  return gradient;
}

// Nodes x ranks on each, and whether those share memory.
inline const std::vector<Topology> kTopologies = {{1, 2},
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

inline std::string name_of(const Topology& topology) {
  return std::to_string(topology.nodes) + " x " + std::to_string(topology.per_node) +
         (topology.shares_memory ? ", shared memory " : " ");
}

}  // namespace lockstep::collectives
