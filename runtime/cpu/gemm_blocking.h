#pragma once
// How products are cut into pieces. No choice made here changes a bit of any result; see gemm.h.

#include <algorithm>
#include <cstdint>

#include "runtime/base/threads.h"

namespace lockstep::cpu {

constexpr int64_t kMaxPanel = 32;  // columns of a panel on the widest instruction set
constexpr int64_t kDepthBlock =
    384;                            // depth of the packed blocks that a tile walks through at once
constexpr int64_t kStripRows = 96;  // rows packed at a time; a multiple of every tile height
constexpr int64_t kDepthChunk = 1152;   // depth of the shared packed panels; whole depth blocks
constexpr int64_t kColumnChunk = 1024;  // columns of the shared packed panels; whole panels

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// The part of [0, count) that belongs to `worker` of `workers`, in whole units.
struct Range {
  int64_t begin, end;
  constexpr int64_t size() const { return end - begin; }
};
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

// Workers arranged as rows x columns over the result; each computes one rectangle of it.
struct WorkerGrid {
  int64_t rows, columns;
  int64_t workers() const { return rows * columns; }
};

// The arrangement whose largest rectangle has the fewest tiles.
constexpr WorkerGrid arrange_workers(int64_t threads, int64_t row_tiles, int64_t column_tiles) {
  WorkerGrid best{threads, 1};
  int64_t best_tiles = ceil_div(row_tiles, threads) * column_tiles;
  for (int64_t columns = 2; columns <= threads; ++columns) {
    if (threads % columns != 0) continue;
    const int64_t tiles = ceil_div(row_tiles, threads / columns) * ceil_div(column_tiles, columns);
    if (tiles < best_tiles) {
      best = {threads / columns, columns};
      best_tiles = tiles;
    }
  }
  return best;
}

// Scratch of one worker, in floats: a packed strip of rows with room for a vector that is stored
// past its end, and one panel.
constexpr int64_t kStripScratch = kStripRows * kDepthBlock + 64;
constexpr int64_t kPanelScratch = kMaxPanel * kDepthBlock;

// Shared packed panels of a product, in floats; none where all rows fit into one strip.
constexpr int64_t packed_panel_floats(int64_t rows, int64_t columns, int64_t depth) {
  if (rows <= kStripRows) return 0;
  return round_up(std::min(columns, kColumnChunk), kMaxPanel) * std::min(depth, kDepthChunk);
}

// Calls body(worker) for each worker, in parallel.
template <typename Body>
void for_each_worker(int64_t workers, const Body& body) {
  parallel_for(workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) body(worker);
  });
}

}  // namespace lockstep::cpu
