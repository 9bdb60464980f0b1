#pragma once
// How kernels divide rows, channels and pixels into the blocks of a grid. Except for sums by one
// wave of blocks, the division depends on the shape alone, so the order of sums does not depend on
// the GPU. Workspaces are known without a GPU.

#include <algorithm>
#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/base/dtype.h"
#include "runtime/graph/op_call.h"

namespace lockstep::cuda {

inline constexpr int kWarp = 32;

// Limits of a grid: in its first dimension, and in its second and third.
inline constexpr int64_t kMaxBlocksAcross = (int64_t{1} << 31) - 1;
inline constexpr int64_t kMaxBlocksDown = 65535;

// Blocks that cover n with `each` per block, in a grid's first dimension.
inline unsigned blocks_for(int64_t n, int64_t each) {
  const int64_t blocks = (n + each - 1) / each;
  LOCKSTEP_REQUIRE(blocks <= kMaxBlocksAcross);
  return static_cast<unsigned>(blocks);
}

// The parts of a workspace begin at such multiples.
inline size_t aligned_bytes(size_t bytes) { return (bytes + 255) / 256 * 256; }

// ---- Sums by one wave of blocks ----

// The blocks that a GPU runs at the same time, if each multiprocessor has room for `each`. Sums
// over rows are divided among so many. So their order depends on the GPU's number of
// multiprocessors, as that of cuBLASLt's sums does. Workspaces are planned for the max.
inline constexpr int kMaxMultiprocessors = 256;
inline int64_t wave_of_blocks(int multiprocessors, int64_t each) {
  LOCKSTEP_REQUIRE(multiprocessors > 0);
  return each * std::min(multiprocessors, kMaxMultiprocessors);
}

// ---- Matrices of rows by channels ----

inline constexpr int kTileThreads = 256;

struct RowTiles {
  int width;           // threads along the channels: a power of two up to a warp
  int64_t block_rows;  // rows per block
  unsigned row_blocks, channel_tiles;
};

// The division for vectors of n channels. A block has at least `min_rows` rows for each of its
// threads, and there are at most about `max_blocks` blocks.
inline RowTiles row_tiles(int64_t rows,
                          int64_t channels,
                          int n,
                          int64_t min_rows,
                          int64_t max_blocks = int64_t{1} << 30) {
  const int64_t vectors = (channels + n - 1) / n;
  RowTiles tiles{};
  tiles.width = 1;
  while (tiles.width < kWarp && tiles.width < vectors) tiles.width *= 2;
  tiles.channel_tiles = blocks_for(vectors, tiles.width);
  const int64_t row_limit = std::max<int64_t>(1, max_blocks / tiles.channel_tiles);
  tiles.block_rows =
      std::max(min_rows * (kTileThreads / tiles.width), (rows + row_limit - 1) / row_limit);
  tiles.row_blocks = blocks_for(rows, tiles.block_rows);
  return tiles;
}

// The largest number of blocks of rows of tiles(n), over all vector widths n.
template <typename Tiles>
int64_t max_row_blocks(Tiles tiles) {
  int64_t blocks = 0;
  for (const int n : {1, 4, 8}) blocks = std::max<int64_t>(blocks, tiles(n).row_blocks);
  return blocks;
}

// ---- Rows that are held in registers: row_parts.h ----

// Max columns of a row: kMaxRowColumns if it consists of full vectors of 16 bytes, otherwise
// kMaxOddColumns.
inline constexpr int64_t kMaxRowColumns = 8192;
inline constexpr int64_t kMaxOddColumns = 2048;

// Whether the rows of the first input are within these limits.
inline bool supports_row(const graph::OpCall& op) {
  const auto x = graph::InputName::at(0);
  const auto vector = static_cast<int64_t>(16 / size_of(op.input_dtype(x)));
  const int64_t columns = op.input_shape(x).columns();
  return columns <= (columns % vector == 0 ? kMaxRowColumns : kMaxOddColumns);
}

// ---- Pixels of images: pixel_kernel.h ----

inline constexpr int64_t kMaxPixels = int64_t{1} << 31;

// Whether the pixels of the first input and the first output can be numbered in 32 bits.
inline bool supports_pixels(const graph::OpCall& op) {
  return op.input_shape(graph::InputName::at(0)).rows() < kMaxPixels &&
         op.output_shape(graph::OutputName::at(0)).rows() < kMaxPixels;
}

}  // namespace lockstep::cuda
