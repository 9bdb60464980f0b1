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
// once it is added; the last buckets are sent as floats.
TEST(SumAllGather, BringsTheSumsOfAllRanks) {
  const auto buckets = make_buckets({0, padded_elements(5000, kLanes)}, kLanes, 1200);
  const size_t all = buckets.size();
  const auto elements = static_cast<size_t>(buckets.back().end);
  for (const Topology& topology :
       {Topology{1, 2}, {1, 4}, {1, 8}, {2, 1}, {2, 2}, {2, 4}, {4, 1}, {4, 2}}) {
    for (const auto& [count, places] :
         {std::pair(size_t{0}, int64_t{2}), {1, 2}, {all - 1, 2}, {all, 2}, {all, 4}, {all, 5}}) {
      const auto rounded =
          staged_gathers(buckets,
                         count,
                         sizeof(BFloat16),
                         static_cast<size_t>(places * largest_bucket(buckets)) * sizeof(BFloat16));
      std::vector<GatherItem> floats;
      for (size_t b = count; b < all; ++b)
        floats.push_back(
            {static_cast<int>(b), static_cast<size_t>(buckets[b].begin) * sizeof(float)});
      const int64_t first_float = count < all ? buckets[count].begin : buckets.back().end;
      const auto sum_of = [&](int64_t i) {
        const float short_number = 0.5f * static_cast<float>(i % 251) - 7;
        return i < first_float ? short_number : short_number + 0x1p-15f;
      };
      testing::run_ranks(topology.ranks(), [&](Communicator& communicator) {
        std::vector<float> sums(elements);
        std::vector<BFloat16> staging(static_cast<size_t>(places * largest_bucket(buckets)));
        test::PlainMath math;
        SumAllGather gather(
            {communicator, communicator},
            math,
            topology,
            buckets,
            {sums.data(), reinterpret_cast<std::byte*>(staging.data()), DType::kBF16},
            {rounded, floats});
        for (int step = 0; step < 2; ++step) {
          std::ranges::fill(sums, NAN);
          gather.begin_step();
          for (const Range& mine :
               owned_ranges(buckets, topology.part_of(communicator.rank()), topology.ranks())) {
            for (int64_t i = mine.begin; i < mine.end; ++i)
              sums[static_cast<size_t>(i)] = sum_of(i);
            gather.add_bucket();
          }
          gather.finish();
          for (size_t i = 0; i < elements; ++i)
            ASSERT_EQ(sums[i], sum_of(static_cast<int64_t>(i))) << i;
        }
      });
    }
  }
}

}  // namespace
}  // namespace lockstep::collectives
