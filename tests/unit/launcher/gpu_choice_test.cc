// Catches: two ranks on one GPU while another is free, a GPU that the rank does not see, and ranks
// that disagree about whether the run is possible.
#include "launcher/ranks/gpu_choice.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace lockstep::launcher {
namespace {

using Gpus = std::vector<std::string>;

std::vector<int> choices(const std::vector<RankGpus>& ranks, bool share_gpu = false) {
  std::vector<int> chosen;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    chosen.push_back(choose_gpu(ranks, static_cast<int>(rank), share_gpu));
  return chosen;
}

// The refusal, which must be the same on every rank.
std::string refusal(const std::vector<RankGpus>& ranks) {
  std::string first;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    try {
      choose_gpu(ranks, static_cast<int>(rank), false);
      ADD_FAILURE() << "rank " << rank << " is not refused";
    } catch (const ConfigError& error) {
      if (rank == 0) first = error.what();
      EXPECT_EQ(error.what(), first);
    }
  }
  return first;
}

TEST(GpuChoice, RanksOfAHostTakeItsGpusInLocalOrder) {
  const Gpus two = {"a", "b"};
  EXPECT_EQ(choices({{"x", 0, two}, {"x", 1, two}, {"y", 0, two}, {"y", 1, two}}),
            (std::vector<int>{0, 1, 0, 1}));
  // Ranks dealt out to hosts one by one, and fewer ranks than GPUs.
  EXPECT_EQ(choices({{"x", 0, two}, {"y", 0, two}, {"x", 1, two}}), (std::vector<int>{0, 0, 1}));
  // The order of local ranks counts, not that of ranks.
  EXPECT_EQ(choices({{"x", 1, two}, {"x", 0, two}}), (std::vector<int>{1, 0}));
}

TEST(GpuChoice, LauncherThatShowsEachRankItsOwnGpu) {
  EXPECT_EQ(choices({{"x", 0, {"a"}}, {"x", 1, {"b"}}, {"x", 2, {"c"}}}),
            (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(
      choices(
          {{"x", 0, {"a", "b"}}, {"x", 1, {"a", "b"}}, {"x", 2, {"c", "d"}}, {"x", 3, {"c", "d"}}}),
      (std::vector<int>{0, 1, 0, 1}));
}

TEST(GpuChoice, HostsWithDifferentNumbers) {
  EXPECT_EQ(choices({{"x", 0, {"a"}}, {"y", 0, {"b", "c"}}, {"y", 1, {"b", "c"}}}),
            (std::vector<int>{0, 0, 1}));
}

TEST(GpuChoice, MoreRanksThanGpusAreRefusedUnlessTheyMayShare) {
  const Gpus two = {"a", "b"};
  const std::vector<RankGpus> ranks = {{"w", 0, {"a"}},
                                       {"x/boot", 0, two},
                                       {"x/boot", 1, two},
                                       {"x/boot", 2, two},
                                       {"x/boot", 3, two}};
  EXPECT_EQ(refusal(ranks),
            "host x has 2 GPUs for 4 ranks; start at most 2 a host, or use --device cpu (or, for "
            "tests, --share-gpu)");
  EXPECT_EQ(choices(ranks, true), (std::vector<int>{0, 0, 1, 0, 1}));
  EXPECT_EQ(refusal({{"x", 0, {"a"}}, {"x", 1, {"a"}}}),
            "host x has 1 GPU for 2 ranks; start at most 1 a host, or use --device cpu (or, for "
            "tests, --share-gpu)");
}

TEST(GpuChoice, RankWithoutAnyGpuIsNamed) {
  EXPECT_EQ(refusal({{"x", 0, {"a"}}, {"y/boot", 0, {}}}),
            "rank 1 on y sees no GPU; check the driver and CUDA_VISIBLE_DEVICES, or use --device "
            "cpu");
}

}  // namespace
}  // namespace lockstep::launcher
