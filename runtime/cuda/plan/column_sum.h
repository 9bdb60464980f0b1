#pragma once
// The workspace of flat/column_sum.h.

#include <cstddef>

#include "runtime/cuda/plan/tiles.h"

namespace lockstep::cuda {

inline RowTiles column_sum_tiles(int64_t rows, int64_t columns, int n) {
  constexpr int64_t kSummedRows = 16;  // min rows per thread
  constexpr int64_t kMaxBlocks = 1024;
  return row_tiles(rows, columns, n, kSummedRows, kMaxBlocks);
}

inline size_t column_sum_workspace_bytes(int64_t rows, int64_t columns) {
  const int64_t blocks = max_row_blocks([&](int n) { return column_sum_tiles(rows, columns, n); });
  return static_cast<size_t>(blocks * columns) * sizeof(float);
}

}  // namespace lockstep::cuda
