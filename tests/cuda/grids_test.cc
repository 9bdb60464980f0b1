// Catches: grids that CUDA does not have, blocks of a tall one that are missing or come twice, and
// counts of blocks that wrap around instead of ending the program.

#include "tests/fibers/cuda_on_host.h"
// What kernels need comes first.
#include <gtest/gtest.h>

#include <vector>

#include "runtime/cuda/kernel_tools.h"
#include "runtime/cuda/plan/indexing.h"

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

// A sum over the rows of a few columns, such as the gradient of a per-channel factor of images, has
// more parts than a grid's second dimension.
TEST(Grids, FitReductionsOfAnyShape) {
  bool tall = false;
  for (const int64_t columns : {1, 2, 3, 4, 5, 127, 129, 65537, 1 << 24}) {
    for (const int64_t rows :
         {int64_t{1}, int64_t{1} << 21, int64_t{3'211'264}, int64_t{1} << 33}) {
      for (const uint32_t reduced : {0b01u, 0b10u}) {
        const graph::ReduceLoops loops = graph::ReduceLoops::of(Shape({rows, columns}), reduced);
        const int64_t parts = ReduceParts::of(loops).count;
        if (loops.by_rows()) {
          EXPECT_LE(loops.kept.count * parts, kMaxBlocksAcross * 128);
          continue;
        }
        const dim3 grid = tall_grid(blocks_for(loops.kept.count, 128), parts);
        EXPECT_LE(grid.y, kMaxBlocksDown) << rows << " x " << columns;
        EXPECT_LE(grid.z, kMaxBlocksDown) << rows << " x " << columns;
        EXPECT_GE(int64_t{grid.y} * grid.z, parts) << rows << " x " << columns;
        tall = tall || parts > kMaxBlocksDown;
      }
    }
  }
  EXPECT_TRUE(tall);
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
