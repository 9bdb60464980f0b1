#pragma once
// The workspace of flat/column_sum.h.

#include <cstddef>

#include "runtime/cuda/plan/tiles.h"

namespace lockstep::cuda {

inline constexpr int kColumnSumBlocks = 4;  // of kTileThreads threads, on a multiprocessor

inline RowTiles column_sum_tiles(int64_t rows, int64_t columns, int n, int multiprocessors) {
  constexpr int64_t kSummedRows = 4;  // min rows per thread, which it loads at once
  return row_tiles(
      rows, columns, n, kSummedRows, wave_of_blocks(multiprocessors, kColumnSumBlocks));
}

inline size_t column_sum_workspace_bytes(int64_t rows, int64_t columns) {
  const int64_t blocks = max_row_blocks(
      [&](int n) { return column_sum_tiles(rows, columns, n, kMaxMultiprocessors); });
  return static_cast<size_t>(blocks * columns) * sizeof(float);
}

}  // namespace lockstep::cuda
