#pragma once
// How products are cut into pieces. No choice made here changes a bit of any result; see gemm.h.
// None depends on the instruction set, so that workspaces have the same size everywhere.

#include <algorithm>
#include <cstdint>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

namespace lockstep::cpu {

constexpr int64_t kMaxPanel = 32;              // columns of a panel on the widest instruction set
constexpr int64_t kTwoPanels = 2 * kMaxPanel;  // columns of a panel and the next one
constexpr int64_t kRowUnit = 12;               // a multiple of every tile height
constexpr int64_t kFewRows = 24;               // too few tiles to pay for packing their panels
constexpr int64_t kDepthBlock = 768;           // depth of one pass of a tile
constexpr int64_t kDepthChunk = 1536;  // depth of the panels kept packed: whole depth blocks
constexpr int64_t kPanelFloats = int64_t{1} << 21;  // size of the panels kept packed
// Packed rows: 264 rows of the deepest block, three quarters of a second-level cache of 1 MiB.
constexpr int64_t kBlockFloats = 264 * kDepthBlock;

constexpr int64_t kFinishFloats = int64_t{1} << 14;  // sums that are finished together

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
constexpr int64_t round_down(int64_t a, int64_t b) { return a / b * b; }

// A part of an index range.
struct Range {
  int64_t begin, end;
  constexpr int64_t size() const { return end - begin; }
};

// The part of [0, count) that belongs to `worker` of `workers`, in full units.
constexpr Range share(int64_t count, int64_t unit, int64_t worker, int64_t workers) {
  const int64_t units = ceil_div(count, unit);
  return {std::min(count, units * worker / workers * unit),
          std::min(count, units * (worker + 1) / workers * unit)};
}

// Depth blocks of nearly equal length.
struct DepthBlocks {
  int64_t depth;
  int64_t length;  // of every block but the last
  explicit constexpr DepthBlocks(int64_t depth)
      : depth(depth),
        length(depth == 0 ? 0 : round_up(ceil_div(depth, ceil_div(depth, kDepthBlock)), 4)) {}
  constexpr int64_t count() const { return depth == 0 ? 0 : ceil_div(depth, length); }
  constexpr Range range(int64_t block) const {
    return {block * length, std::min(depth, (block + 1) * length)};
  }
};

// Columns of the panels kept packed for a depth chunk of this length. Rows are packed again for
// each chunk of columns, so there should be few chunks, even though their panels fill the
// third-level cache.
constexpr int64_t column_chunk(int64_t depth_chunk) {
  return std::max<int64_t>(1, kPanelFloats / depth_chunk / kMaxPanel) * kMaxPanel;
}

// Max rows multiplied (and packed) at a time, for a depth block of this length.
constexpr int64_t max_block_rows(int64_t depth_block) {
  return kBlockFloats / depth_block / kRowUnit * kRowUnit;
}
// The height of the nearly equal blocks that `rows` rows are cut into. All columns of a block are
// computed before the next block. Each panel writes a part of every row of the result, and those
// rows should stay in the cache, so blocks are small; but large enough to pay for the panels.
constexpr int64_t block_rows(int64_t rows, int64_t depth_block, int64_t columns) {
  constexpr int64_t kMinRows = 252;
  const int64_t max_rows = max_block_rows(depth_block);
  const int64_t preferred_rows =
      std::min(max_rows, std::max(kMinRows, kBlockFloats / std::max<int64_t>(1, columns)));
  const int64_t blocks = std::max(
      {int64_t{1}, ceil_div(rows, max_rows), (rows + preferred_rows / 2) / preferred_rows});
  return round_up(ceil_div(rows, blocks), kRowUnit);
}

// Scratch memory for the packed rows, in floats, with room for a vector stored past their end.
constexpr int64_t packed_rows_floats(int64_t rows, int64_t depth_block) {
  const int64_t floats = rows <= max_block_rows(depth_block) ? rows * depth_block : kBlockFloats;
  return round_up(floats, 16) + 16;
}

// Workers arranged as rows x columns over a result. Each computes one rectangle alone.
struct WorkerGrid {
  int64_t rows, columns;
  constexpr int64_t workers() const { return rows * columns; }
  // The rows and columns of the largest rectangle, for a result with `all` rows or columns.
  constexpr int64_t max_rows(int64_t all, int64_t unit = kRowUnit) const {
    return ceil_div(ceil_div(all, unit), rows) * unit;
  }
  constexpr int64_t max_columns(int64_t all) const {
    return ceil_div(ceil_div(all, kMaxPanel), columns) * kMaxPanel;
  }
};

// Cost of a product in multiply-adds. Each element that is read or written counts as 8.
constexpr int64_t product_work(int64_t rows, int64_t columns, int64_t depth) {
  return rows * columns * depth + 8 * (rows * depth + columns * depth + rows * columns);
}

// Finds the arrangement that minimises the work of the busiest worker: its elements, and its share
// of the packing, which costs about 8 elements for each row and column. A small product gets fewer
// workers than there are threads.
constexpr WorkerGrid arrange_workers(
    int64_t threads, int64_t rows, int64_t columns, int64_t depth, int64_t row_unit = kRowUnit) {
  threads = threads_worth(threads, product_work(rows, columns, depth));
  WorkerGrid best{};
  int64_t best_work = -1;
  for (int64_t across = 1; across <= threads; ++across) {
    if (threads % across != 0) continue;
    const WorkerGrid grid{threads / across, across};
    const int64_t max_rows = grid.max_rows(rows, row_unit), max_columns = grid.max_columns(columns);
    const int64_t work = max_rows * max_columns + 8 * (max_rows + max_columns);
    if (best_work < 0 || work < best_work) {
      best = grid;
      best_work = work;
    }
  }
  return best;
}

// Scratch memory of one worker of a product, in floats.
struct GemmScratch {
  GemmScratch(int64_t rows, int64_t columns, int64_t depth, WorkerGrid grid) {
    const int64_t depth_chunk = std::min(depth, kDepthChunk);
    const int64_t depth_block = DepthBlocks(depth_chunk).length;
    packed_a = packed_rows_floats(grid.max_rows(rows), depth_block);
    const int64_t max_rows = grid.max_rows(rows), max_columns = grid.max_columns(columns);
    packed_b = max_rows > block_rows(max_rows, depth_block, max_columns)
                   ? std::min(max_columns, column_chunk(depth_chunk)) * depth_chunk
                   : kTwoPanels * depth_block;
  }
  int64_t floats() const { return packed_a + packed_b; }

  int64_t packed_a, packed_b;
};

// Calls body(worker) for each worker, in parallel.
template <typename Body>
void for_each_worker(int64_t workers, const Body& body) {
  parallel_for(workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) body(worker);
  });
}

}  // namespace lockstep::cpu
