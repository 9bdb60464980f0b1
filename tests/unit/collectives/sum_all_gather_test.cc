// Catches: a part of the sums that some rank does not get, or gets from the memory that another
// bucket has on its way.
#include "collectives/gather/sum_all_gather.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "runtime/base/half.h"
#include "tests/reference/plain_math.h"
#include "tests/reference/thread_communicator.h"

namespace lockstep::collectives {
namespace {

constexpr int kLanes = 8;

// Through memory for two buckets or more, whatever their number.
TEST(SumAllGather, BringsTheSumsOfAllRanks) {
  const auto buckets = make_buckets({0, padded_elements(5000, kLanes)}, kLanes, 1200);
  const auto elements = static_cast<size_t>(buckets.back().end);
  const auto sum_of = [](size_t i) { return 0.5f * static_cast<float>(i % 251) - 7; };
  for (const Topology& topology :
       {Topology{1, 2}, {1, 4}, {1, 8}, {2, 1}, {2, 2}, {2, 4}, {4, 1}, {4, 2}}) {
    for (const auto& [count, places] : {std::pair(size_t{1}, int64_t{2}),
                                        {buckets.size() - 1, 2},
                                        {buckets.size(), 2},
                                        {buckets.size(), 4},
                                        {buckets.size(), 5}}) {
      testing::run_ranks(topology.ranks(), [&](Communicator& communicator) {
        std::vector<float> sums(elements, NAN);
        for (const Range& mine :
             owned_ranges(buckets, topology.part_of(communicator.rank()), topology.ranks())) {
          for (auto i = static_cast<size_t>(mine.begin); i < static_cast<size_t>(mine.end); ++i)
            sums[i] = sum_of(i);
        }
        const std::vector<float> own = sums;
        std::vector<BFloat16> staging(static_cast<size_t>(places * largest_bucket(buckets)));
        test::PlainMath math;
        SumAllGather gather(
            {communicator, communicator},
            math,
            topology,
            buckets,
            {sums.data(), reinterpret_cast<std::byte*>(staging.data()), DType::kBF16});
        const auto items =
            staged_gathers(buckets, count, sizeof(BFloat16), staging.size() * sizeof(BFloat16));
        for (int step = 0; step < 2; ++step) gather.run(items);
        for (size_t i = 0; i < elements; ++i) {
          const bool brought = static_cast<int64_t>(i) < buckets[count - 1].end;
          const float wanted = brought ? sum_of(i) : own[i];
          ASSERT_TRUE(sums[i] == wanted || (std::isnan(sums[i]) && std::isnan(wanted))) << i;
        }
      });
    }
  }
}

}  // namespace
}  // namespace lockstep::collectives
