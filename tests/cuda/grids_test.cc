// Catches: grids that CUDA does not have, blocks of a tall one that are missing or come twice, and
// counts of blocks that wrap around instead of ending the program.

#include "tests/fibers/cuda_on_host.h"
// What kernels need comes first.
#include <gtest/gtest.h>

#include <vector>

#include "runtime/cuda/kernel_tools.h"

namespace lockstep::cuda {
namespace {

__global__ void count_kernel(int64_t down, int* counts) {
  if (block_down() < down) ++counts[block_down() * gridDim.x + blockIdx.x];
}

TEST(Grids, EachBlockOfATallGridComesOnce) {
  for (const int64_t down : {1, 65534, 65535, 65536, 65537, 131070, 131071}) {
    for (const unsigned across : {1u, 2u}) {
      std::vector<int> counts(static_cast<size_t>(across * down));
      launch({tall_grid(across, down), {1, 1, 1}, nullptr}, count_kernel, down, counts.data());
      EXPECT_EQ(counts, std::vector<int>(counts.size(), 1)) << across << " x " << down;
    }
  }
}

TEST(Grids, LowOnesHaveTwoDimensions) {
  const dim3 grid = tall_grid(7, kMaxBlocksDown);
  EXPECT_EQ(grid.x, 7u);
  EXPECT_EQ(grid.y, 65535u);
  EXPECT_EQ(grid.z, 1u);
}

TEST(GridsDeathTest, CountsDoNotWrapAround) {
  EXPECT_EQ(blocks_for(kMaxBlocksAcross, 1), 2147483647u);
  EXPECT_DEATH(blocks_for(kMaxBlocksAcross + 1, 1), "internal error");
  EXPECT_DEATH(blocks_for((int64_t{1} << 32) + 5, 1), "internal error");
  EXPECT_DEATH(tall_grid(1, kMaxBlocksDown * kMaxBlocksDown + 1), "internal error");
  EXPECT_DEATH(tall_grid(1, 0), "internal error");
}

}  // namespace
}  // namespace lockstep::cuda
