#pragma once
// How kernels share out rows, channels and pixels over the blocks of a grid. The shape alone
// decides, so the order of sums does not depend on the GPU, and workspaces are known without one.

#include <algorithm>
#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/base/dtype.h"
#include "runtime/graph/op_call.h"

namespace lockstep::cuda {

inline constexpr int kWarp = 32;

// What a grid has in its first dimension, and in its second and third.
inline constexpr int64_t kMostBlocksAcross = (int64_t{1} << 31) - 1;
inline constexpr int64_t kMostBlocksDown = 65535;

// Blocks that cover n with `each` apiece, in a grid's first dimension.
inline unsigned blocks_for(int64_t n, int64_t each) {
  const int64_t blocks = (n + each - 1) / each;
  LOCKSTEP_REQUIRE(blocks <= kMostBlocksAcross);
  return static_cast<unsigned>(blocks);
}

// Where parts of a workspace begin.
inline size_t aligned_bytes(size_t bytes) { return (bytes + 255) / 256 * 256; }

// ---- Matrices of rows by channels ----

inline constexpr int kTileThreads = 256;

struct RowTiles {
  int width;           // threads side by side: a power of two up to a warp
  int64_t block_rows;  // of a block
  unsigned row_blocks, channel_tiles;
};

// Vectors of n channels; a block has at least `fewest` rows for each of its threads, and there are
// at most about `most_blocks` blocks.
inline RowTiles row_tiles(
    int64_t rows, int64_t channels, int n, int64_t fewest, int64_t most_blocks = int64_t{1} << 30) {
  const int64_t vectors = (channels + n - 1) / n;
  RowTiles tiles{};
  tiles.width = 1;
  while (tiles.width < kWarp && tiles.width < vectors) tiles.width *= 2;
  tiles.channel_tiles = blocks_for(vectors, tiles.width);
  const int64_t most = std::max<int64_t>(1, most_blocks / tiles.channel_tiles);
  tiles.block_rows = std::max(fewest * (kTileThreads / tiles.width), (rows + most - 1) / most);
  tiles.row_blocks = blocks_for(rows, tiles.block_rows);
  return tiles;
}

// The most blocks of rows that tiles(n) has, for vectors of any width n.
template <typename Tiles>
int64_t most_row_blocks(Tiles tiles) {
  int64_t most = 0;
  for (const int n : {1, 4, 8}) most = std::max<int64_t>(most, tiles(n).row_blocks);
  return most;
}

// ---- Rows that are held in registers: row_parts.h ----

// Columns that a row may have when it is whole vectors of 16 bytes; without that kMostOddColumns.
inline constexpr int64_t kMostRowColumns = 8192;
inline constexpr int64_t kMostOddColumns = 2048;

// Whether the rows of the op's first input are such.
inline bool supports_row(const OpCall& op) {
  const auto vector = static_cast<int64_t>(16 / size_of(op.input_dtype(0)));
  const int64_t columns = op.input_shape(0).columns();
  return columns <= (columns % vector == 0 ? kMostRowColumns : kMostOddColumns);
}

// A backward pass gives each block of threads a block of rows and keeps its share of the sums over
// rows in registers.
inline int64_t rows_per_block(int64_t rows) {
  constexpr int64_t kRowBlocks = 1024;
  return (rows + kRowBlocks - 1) / kRowBlocks;
}
inline size_t row_blocks_of(int64_t rows) { return blocks_for(rows, rows_per_block(rows)); }

// ---- Pixels of images: pixel_kernel.h ----

inline constexpr int64_t kMostPixels = int64_t{1} << 31;

// Whether the pixels of the op's first input and output can be numbered in 32 bits.
inline bool supports_pixels(const OpCall& op) {
  return op.input_shape(0).rows() < kMostPixels && op.output_shape(0).rows() < kMostPixels;
}

}  // namespace lockstep::cuda
