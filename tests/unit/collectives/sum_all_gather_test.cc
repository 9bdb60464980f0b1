// Catches: a part of the sums that some rank does not get, or gets from the memory that another
// bucket has on its way.
#include "collectives/gather/sum_all_gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "runtime/base/half.h"
#include "tests/reference/plain_math.h"
#include "tests/reference/thread_communicator.h"

namespace lockstep::collectives {
namespace {

constexpr int kLanes = 8;

// Through memory for two buckets or more, whatever their number. A bucket's sums are there only
// once it is added. Some are sent as floats, and every third one only later, the last ones first.
void bring_the_sums_of_all_ranks(const std::vector<Range>& buckets,
                                 const std::vector<Topology>& topologies) {
  const int all = static_cast<int>(buckets.size());
  const auto elements = static_cast<size_t>(buckets.back().end);
  for (const Topology& topology : topologies) {
    for (const auto& [count, places] :
         {std::pair(0, int64_t{2}), {1, 2}, {all - 1, 2}, {all, 2}, {all, 4}, {all, 5}}) {
      const bool rounds = count > 0;
      const size_t staged = static_cast<size_t>(places * largest_bucket(buckets));
      const auto items_of = [&](const std::vector<int>& order, bool through_staging) {
        if (through_staging)
          return staged_gathers(buckets, order, sizeof(BFloat16), staged * sizeof(BFloat16));
        std::vector<GatherItem> items;
        for (const int b : order)
          items.push_back(
              {b, static_cast<size_t>(buckets[static_cast<size_t>(b)].begin) * sizeof(float)});
        return items;
      };
      std::vector<int> rounded, floats, later;
      for (int b = 0; b < all; ++b)
        (b % 3 == 1 && (b < count || !rounds) ? later : b < count ? rounded : floats).push_back(b);
      std::ranges::reverse(later);
      const int64_t first_float =
          count < all ? buckets[static_cast<size_t>(count)].begin : buckets.back().end;
      const auto sum_of = [&](int64_t i, int step) {
        const float short_number =
            0.5f * static_cast<float>(i % 251) - 7 + static_cast<float>(step);
        return i < first_float ? short_number : short_number + 0x1p-15f;
      };
      const auto rounded_items = items_of(rounded, true), float_items = items_of(floats, false),
                 later_items = items_of(later, rounds);
      testing::run_ranks(topology.ranks(), [&](Communicator& communicator) {
        std::vector<float> sums(elements);
        std::vector<BFloat16> staging(staged);
        test::PlainMath math;
        SumAllGather gather({communicator, communicator},
                            math,
                            topology,
                            buckets,
                            {sums.data(),
                             reinterpret_cast<std::byte*>(staging.data()),
                             rounds ? DType::kBF16 : DType::kF32},
                            {rounded_items, float_items, later_items});
        for (int step = 0; step < 3; ++step) {
          const auto expect_bucket = [&](int bucket) {
            const Range& range = buckets[static_cast<size_t>(bucket)];
            for (int64_t i = range.begin; i < range.end; ++i)
              ASSERT_EQ(sums[static_cast<size_t>(i)], sum_of(i, step)) << i;
          };
          std::ranges::fill(sums, NAN);
          gather.begin_step();
          for (int b = 0; b < all; ++b) {
            const Range mine = part_of(buckets[static_cast<size_t>(b)],
                                       topology.part_of(communicator.rank()),
                                       topology.ranks());
            for (int64_t i = mine.begin; i < mine.end; ++i)
              sums[static_cast<size_t>(i)] = sum_of(i, step);
            gather.add_bucket(b);
          }
          gather.finish();
          for (const int b : rounded) expect_bucket(b);
          for (const int b : floats) expect_bucket(b);
          if (step == 1) continue;  // as a step that is skipped: its later sums are not needed
          std::vector<int> arrived;
          gather.start_later([&](int bucket) {
            expect_bucket(bucket);
            arrived.push_back(bucket);
          });
          for (size_t i = 0; i < later.size(); ++i) {
            gather.later().wait_for(i + 1);
            ASSERT_GT(arrived.size(), i);
          }
          ASSERT_EQ(arrived, later);
        }
      });
    }
  }
}

TEST(SumAllGather, BringsTheSumsOfAllRanks) {
  bring_the_sums_of_all_ranks(make_buckets({0, padded_elements(5000, kLanes)}, kLanes, 1200),
                              {{1, 2}, {1, 4}, {1, 8}, {2, 1}, {2, 2}, {2, 4}, {4, 1}, {4, 2}});
}

// More buckets than may be in flight: some are completed while others are still being summed.
TEST(SumAllGather, CompletesOldGathersMeanwhile) {
  const auto buckets = make_buckets({0, padded_elements(40'000, kLanes)}, kLanes, 512);
  ASSERT_GT(buckets.size(), 70u);
  bring_the_sums_of_all_ranks(buckets, {{1, 2}, {2, 2}, {4, 1}});
}

}  // namespace
}  // namespace lockstep::collectives
