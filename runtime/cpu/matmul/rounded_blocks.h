#pragma once
// How a product of bfloat16 whose results are rounded is cut into blocks: the sums of a block stay
// in the cache, in floats, until they are complete. rounded_blocks-inl.h computes them.

#include <algorithm>
#include <cstdint>

#include "runtime/cpu/matmul/gemm_blocking.h"

namespace lockstep::cpu {

// The size of the blocks, and the scratch memory of one worker, in floats: the sums, rows of A (of
// a block, or packed for all columns), and packed panels of B.
struct RoundedBlocks {
  RoundedBlocks(int64_t all_rows, int64_t all_columns, int64_t depth, WorkerGrid grid)
      : depth(depth),
        rows(even_rows(grid.max_rows(all_rows))),
        columns(std::min(grid.max_columns(all_columns), kColumns)),
        keeps(grid.max_rows(all_rows) > rows),
        sum_stride(columns + kGap),
        a_stride(this->depth.length + kGap),
        together(rows_packed_together(grid.max_rows(all_rows), grid.max_columns(all_columns))),
        sums(rows * sum_stride),
        a(std::max({rows * a_stride,
                    packed_rows_floats(rows, this->depth.length),
                    together * this->depth.depth + 16})),
        b(keeps ? columns * depth : kTwoPanels * this->depth.length) {}
  int64_t floats() const { return sums + a + b; }

  // Rows of nearly equal blocks.
  static constexpr int64_t even_rows(int64_t all) {
    return all == 0 ? kRowUnit : round_up(ceil_div(all, ceil_div(all, kRows)), kRowUnit);
  }

  static constexpr int64_t kRows = 264;
  // So few that a block need not pack its rows of A, if they are not packed for all columns.
  static constexpr int64_t kColumns = 7 * kMaxPanel;
  static constexpr int64_t kGap = 16;  // rows are not a multiple of the page size apart

  DepthBlocks depth;
  int64_t rows, columns;
  bool keeps;  // packed panels are kept for more blocks of rows
  int64_t sum_stride, a_stride;
  int64_t together;  // rows of A packed once for all blocks of columns; 0: each block packs its own
  int64_t sums, a, b;

 private:
  int64_t rows_packed_together(int64_t all_rows, int64_t all_columns) const {
    if (all_columns <= columns || rows * depth.depth > kPanelFloats) return 0;
    return std::min(all_rows, kPanelFloats / (rows * std::max<int64_t>(1, depth.depth)) * rows);
  }
};

}  // namespace lockstep::cpu
