// Catches: an index that no thread, or more than one, works on, and a wake-up that is lost (the
// test would hang).
#include "runtime/base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace lockstep {
namespace {

TEST(Threads, EveryIndexOnceForAnyCount) {
  for (int threads : {1, 2, 3, 5}) {
    set_compute_threads(threads);
    for (int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (int64_t grain : {1, 3, 100}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
        parallel_for(count, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        for (const auto& hit : hits) ASSERT_EQ(hit, 1);
      }
    }
  }
  set_compute_threads(1);
}

TEST(Threads, ManyShortLoopsLoseNoWakeUp) {
  set_compute_threads(4);
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 3000; ++round)
    parallel_for(4, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
  set_compute_threads(1);
  EXPECT_EQ(sum, 12'000);
}

}  // namespace
}  // namespace lockstep
