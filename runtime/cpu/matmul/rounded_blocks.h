#pragma once
// How a product whose results are rounded to bfloat16 is cut into blocks: the sums of a block stay
// in the cache, in floats, until they are complete.

#include <algorithm>
#include <cstdint>

#include "runtime/cpu/matmul/gemm_blocking.h"

namespace lockstep::cpu {

// The size of the blocks, and the scratch memory of one worker, in floats: the sums, then that of
// multiply_rectangle().
struct RoundedBlocks {
  RoundedBlocks(int64_t all_rows, int64_t all_columns, int64_t depth, WorkerGrid grid)
      : rows(std::min(grid.max_rows(all_rows), kRows)),
        columns(std::min(grid.max_columns(all_columns), kColumns)),
        stride(columns + 16),  // not a multiple of the page size
        sums(rows * stride),
        gemm(rows, columns, depth, {1, 1}) {}
  int64_t floats() const { return sums + gemm.floats(); }

  // Calls body(rows, columns) for the blocks of a rectangle.
  template <typename Body>
  void for_each(Range all_rows, Range all_columns, const Body& body) const {
    for (int64_t n = all_columns.begin; n < all_columns.end; n += columns) {
      for (int64_t m = all_rows.begin; m < all_rows.end; m += rows)
        body(Range{m, std::min(all_rows.end, m + rows)},
             Range{n, std::min(all_columns.end, n + columns)});
    }
  }

  static constexpr int64_t kRows = 252, kColumns = 512;

  int64_t rows, columns, stride, sums;
  GemmScratch gemm;
};

}  // namespace lockstep::cpu
