// Catches: a bucket or slice that a number of ranks could split, overlap or leave out.
#include "collectives/layout/sharding.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::collectives {
namespace {

TEST(Sharding, PaddingIsTheLeastMultiple) {
  for (int lanes : {1, 2, 8, 64}) {
    const int64_t unit = lanes * kSliceAlignment;
    for (int64_t elements : {int64_t{1}, unit - 1, unit, unit + 1, 10 * unit}) {
      const int64_t padded = padded_elements(elements, lanes);
      EXPECT_EQ(padded % unit, 0);
      EXPECT_GE(padded, elements);
      EXPECT_LT(padded - elements, unit);
    }
  }
}

TEST(Sharding, BucketsCoverTheBufferInOrder) {
  for (int64_t target : {int64_t{1}, int64_t{5000}, int64_t{1} << 40}) {
    const int64_t padded = padded_elements(100'000, 8);
    const auto buckets = make_buckets({0, padded}, 8, target);
    int64_t next = 0;
    for (const Range& bucket : buckets) {
      EXPECT_EQ(bucket.begin, next);
      EXPECT_GT(bucket.size(), 0);
      EXPECT_EQ(bucket.size() % (8 * kSliceAlignment), 0);
      next = bucket.end;
    }
    EXPECT_EQ(next, padded);
  }
}

// As much is under way of small buckets as of usual ones, but where memory is to be saved; never
// more than there is, nor more than 48 buckets.
TEST(Sharding, WhatMayBeUnderWayIsCountedInElements) {
  constexpr int64_t kMi = 1 << 20;
  using enum InFlightLimit;
  const auto of = [](int64_t bucket, int64_t count, InFlightLimit limit, int64_t at_once = 0) {
    return exchanged_elements(make_buckets({0, bucket * count}, 1, bucket), limit, at_once);
  };
  EXPECT_EQ(of(kUsualBucketElements, 10, kUsual), 4 * kUsualBucketElements);
  EXPECT_EQ(of(2 * kUsualBucketElements, 10, kUsual), 8 * kUsualBucketElements);
  EXPECT_EQ(of(kMi, 100, kUsual), 4 * kUsualBucketElements);
  EXPECT_EQ(of(kMi, 100, kSavesMemory), 4 * kMi);
  EXPECT_EQ(of(kMi, 10, kUsual), 10 * kMi);
  EXPECT_EQ(of(kMi, 3, kSavesMemory), 3 * kMi);
  EXPECT_EQ(of(kMi / 16, 1000, kUsual), 48 * kMi / 16);
  EXPECT_EQ(of(kMi, 1000, kGathersFollow), 4 * kUsualBucketElements);
  EXPECT_EQ(of(kMi, 20, kGathersFollow), 5 * kMi);
  EXPECT_EQ(of(kMi, 2, kGathersFollow), kMi);
  EXPECT_EQ(of(kMi, 20, kGathersFollow, 4 * kMi), 5 * kMi);
  EXPECT_EQ(of(kMi, 20, kGathersFollow, 7 * kMi), 7 * kMi);
  EXPECT_EQ(of(kMi, 20, kGathersFollow, 15 * kMi), 10 * kMi);
  EXPECT_EQ(of(kMi / 16, 1000, kUsual, 1000 * kMi), 48 * kMi / 16);
}

// The buckets of a turn fill one half of the memory, and those of the next the other.
TEST(Sharding, StagedGathersTakeTurns) {
  const std::vector<Range> buckets = {{0, 400}, {400, 500}, {500, 900}, {900, 1000}, {1000, 1100}};
  const std::vector<GatherItem> in_pairs = {
      {0, 0, 0}, {1, 800, 0}, {2, 1024, 1}, {3, 1824, 1}, {4, 0, 2}};
  EXPECT_EQ(staged_gathers(buckets, std::vector{0, 1, 2, 3, 4}, 2, 2048), in_pairs);
  const std::vector<GatherItem> one_by_one = {{2, 0, 0}, {1, 800, 1}, {0, 0, 2}};
  EXPECT_EQ(staged_gathers(buckets, std::vector{2, 1, 0}, 2, 1600), one_by_one);
}

TEST(Sharding, EveryRankCountOwnsWholeSlices) {
  const auto buckets = make_buckets({0, padded_elements(99'999, 8)}, 8, 20'000);
  for (const Range& bucket : buckets) {
    for (int ranks : {1, 2, 4, 8}) {
      const int per_rank = 8 / ranks;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range owned = part_of(bucket, rank, ranks);
        EXPECT_EQ(owned.begin, part_of(bucket, rank * per_rank, 8).begin);
        EXPECT_EQ(owned.end, part_of(bucket, rank * per_rank + per_rank - 1, 8).end);
      }
    }
  }
}

TEST(Sharding, OwnedRangesOfAllRanksCoverEverythingOnce) {
  const int64_t padded = padded_elements(123'456, 16);
  const auto buckets = make_buckets({0, padded}, 16, 30'000);
  std::vector<int> owners(static_cast<size_t>(padded), 0);
  for (int rank = 0; rank < 4; ++rank) {
    for (const Range& range : owned_ranges(buckets, rank, 4)) {
      for (int64_t i = range.begin; i < range.end; ++i) ++owners[static_cast<size_t>(i)];
    }
  }
  EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), padded);
}

TEST(Sharding, RangesAreCutAtThePlacesWithinThem) {
  const std::vector<int64_t> places = {0, 64, 128, 512};
  EXPECT_EQ(cut_range({0, 512}, places), (std::vector<Range>{{0, 64}, {64, 128}, {128, 512}}));
  EXPECT_EQ(cut_range({64, 128}, places), (std::vector<Range>{{64, 128}}));
  EXPECT_EQ(cut_range({100, 600}, places),
            (std::vector<Range>{{100, 128}, {128, 512}, {512, 600}}));
  EXPECT_EQ(cut_range({5, 7}, {}), (std::vector<Range>{{5, 7}}));
}

TEST(Sharding, BuffersFollowTheBinaryCounter) {
  for (const auto& [lanes, buffers] : {std::pair(1, 1), {2, 2}, {4, 3}, {6, 3}, {8, 4}, {12, 4}})
    EXPECT_EQ((LaneShares{.lanes = lanes}.buffers()), buffers) << lanes;
  EXPECT_EQ((LaneShares{.lanes = 24, .ranks = 6}.buffers()), 3);  // four lanes from a multiple of 4
  EXPECT_EQ((LaneShares{.lanes = 8, .ranks = 2, .order = LaneOrder::kTogether}.buffers()), 4);
  EXPECT_EQ((LaneShares{.lanes = 8, .ranks = 2, .order = LaneOrder::kEachSummed}.buffers()), 3);
}

TEST(Sharding, RanksShareAllLanesAsEvenlyAsTheyCan) {
  for (const LaneOrder order : {LaneOrder::kInTurn, LaneOrder::kEachSummed}) {
    for (int lanes = 1; lanes <= 24; ++lanes) {
      for (int ranks = 1; ranks <= lanes; ++ranks) {
        const LaneShares shares = {.lanes = lanes, .ranks = ranks, .order = order};
        std::vector<int> owners(static_cast<size_t>(lanes));
        for (int rank = 0; rank < ranks; ++rank) {
          const LocalLanes local = shares.of(rank);
          EXPECT_TRUE(local.count == lanes / ranks || local.count == shares.most());
          for (int i = 0; i < local.count; ++i) ++owners[static_cast<size_t>(local[i])];
        }
        EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), lanes);
        EXPECT_EQ(shares.most(), (lanes + ranks - 1) / ranks);
      }
    }
  }
  const LaneShares groups = {.lanes = 24, .ranks = 5, .unit = 3};
  for (int rank = 0; rank < 5; ++rank) EXPECT_EQ(groups.of(rank).count % 3, 0);
}

}  // namespace
}  // namespace lockstep::collectives
