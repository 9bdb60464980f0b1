#pragma once
// Cuts products of tiles (bf16x3.h) into pieces that fit into the caches. No choice made
// here changes a bit of a result.
//
// A block of rows of A, some chunks deep, is split and stays in the second-level cache while it is
// multiplied with the panels of B, two tiles wide each. If there are more blocks of rows, the split
// panels of B are kept for them. Each worker does this alone for its rectangle of the result.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "runtime/cpu/matmul/bf16x3.h"
#include "runtime/cpu/matmul/gemm_blocking.h"

namespace lockstep::cpu {

inline constexpr int64_t kSplitPanel = 2 * kTileEdge;    // columns
inline constexpr int64_t kSplitRowUnit = 2 * kTileEdge;  // rows multiplied at a time
inline constexpr int64_t kSplitBlockChunks = 16;         // chunks multiplied at a time
inline constexpr int64_t kSplitKeptChunks = 48;          // chunks whose panels are kept
inline constexpr int64_t kSplitKeptColumns = 1024;       // columns whose panels are kept
inline constexpr int64_t kSplitBlockElems = 352 * 1024;  // of A: a third of a 2 MiB cache

// A range cut into nearly equal blocks of at most `max_units` units.
struct EvenBlocks {
  EvenBlocks(Range range, int64_t unit, int64_t max_units) : range(range) {
    const int64_t units = ceil_div(range.size(), unit);
    step = std::max<int64_t>(1, ceil_div(units, ceil_div(std::max<int64_t>(1, units), max_units))) *
           unit;
  }
  int64_t count() const { return ceil_div(range.size(), step); }
  Range operator[](int64_t block) const {
    const int64_t begin = range.begin + block * step;
    return {begin, std::min(range.end, begin + step)};
  }
  Range range;
  int64_t step;
};

// Pairs of row tiles in a block of A that is `chunks` chunks deep.
template <typename T>
int64_t max_row_units(int64_t chunks) {
  return std::clamp<int64_t>(
      kSplitBlockElems / (2 * kTileElems<T> * std::max<int64_t>(1, chunks)), 1, 24);
}

inline WorkerGrid split_workers(int64_t threads, int64_t rows, int64_t columns, int64_t chunks) {
  return arrange_workers(threads, rows, columns, chunks * kTileDepth, kSplitRowUnit);
}

// One worker's scratch memory, in elements.
template <typename T>
struct SplitScratch {
  SplitScratch(int64_t rows, int64_t columns, int64_t chunks) {
    const int64_t kept = std::min(chunks, kSplitKeptChunks);
    const int64_t block = EvenBlocks({0, kept}, 1, kSplitBlockChunks).step;
    const int64_t row_units = ceil_div(rows, kSplitRowUnit);
    const bool keep = row_units > max_row_units<T>(block);
    packed_a = keep ? kSplitBlockElems : row_units * 2 * block * kTileElems<T>;
    packed_b =
        (keep ? ceil_div(std::min(columns, kSplitKeptColumns), kSplitPanel) * kept : 2 * block) *
        2 * kTileElems<T>;
  }
  SplitScratch(int64_t rows, int64_t columns, int64_t chunks, WorkerGrid grid)
      : SplitScratch(grid.max_rows(rows, kSplitRowUnit), grid.max_columns(columns), chunks) {}
  int64_t elems() const { return packed_a + packed_b; }
  int64_t bytes() const { return elems() * static_cast<int64_t>(sizeof(uint16_t)); }

  int64_t packed_a, packed_b;
};

// A block of A, with the lists for splitting it.
template <typename T>
struct SplitJobs {
  using Split = typename TileKernels<T>::Split;
  static constexpr int64_t kMaxTiles = kSplitBlockElems / kTileElems<T> + 2 * kSplitBlockChunks;

  Split tiles[kMaxTiles];
  const T* rows[kMaxTiles * kTileEdge];
};

// Tiles that are split while others are multiplied.
template <typename T>
struct SplitAhead {
  std::span<const typename TileKernels<T>::Split> tiles;
  int64_t of_pair = 0;  // entries of A per pair of row tiles; 0: the entries are of B
};

// Multiplies the tiles of a panel and a block of rows. Copies sums that do not fill tiles, or whose
// rows are not contiguous, from a buffer into the result. Tiles of A to be split ahead are those of
// the row tiles from the second pair on.
template <typename T, typename C>
void multiply_panel(const TileKernels<T>& kernels,
                    typename TileKernels<T>::Tiles tiles,
                    Range rows,
                    Range columns,
                    const C& c,
                    SplitAhead<T> ahead) {
  const int64_t pairs = ceil_div(rows.size(), kSplitRowUnit);
  const bool direct = columns.size() % kTileEdge == 0 && c.stride() > 0;
  // Selects the tiles to split while pairs [begin, end) are multiplied.
  const auto set_next = [&](int64_t begin, int64_t end) {
    const auto count = static_cast<int64_t>(ahead.tiles.size());
    const bool of_b = ahead.of_pair == 0;
    const int64_t of_pair = of_b ? ceil_div(count, pairs) : ahead.of_pair;
    const int64_t first = std::min(count, begin * of_pair), last = std::min(count, end * of_pair);
    tiles.next = ahead.tiles.data() + first;
    tiles.next_count = last - first;
    tiles.next_steps = of_b ? ceil_div(of_pair * kTileEdge, tiles.chunks) : 2 * kTileEdge;
    tiles.next_of_b = of_b;
  };
  const int64_t direct_pairs = direct ? rows.size() / kSplitRowUnit : 0;  // need no buffer
  const uint16_t* const a = tiles.a;
  if (direct_pairs > 0) {
    set_next(0, direct_pairs);
    tiles.row_tiles = 2 * direct_pairs;
    tiles.c = c.row(rows.begin) + columns.begin;
    tiles.c_stride = c.stride();
    kernels.multiply(tiles);
  }
  alignas(64) float buffer[kSplitRowUnit * kSplitPanel];
  const size_t bytes = static_cast<size_t>(columns.size()) * sizeof(float);
  tiles.c = buffer;
  tiles.c_stride = kSplitPanel;
  for (int64_t pair = direct_pairs; pair < pairs; ++pair) {
    const int64_t i = rows.begin + pair * kSplitRowUnit;
    const int64_t some = std::min(kSplitRowUnit, rows.end - i);
    for (int64_t n = 0; n < some && tiles.accumulate; ++n)
      std::memcpy(buffer + n * kSplitPanel, c.row(i + n) + columns.begin, bytes);
    set_next(pair, pair + 1);
    tiles.a = a + 2 * pair * tiles.a_stride;
    tiles.row_tiles = ceil_div(some, kTileEdge);
    kernels.multiply(tiles);
    for (int64_t n = 0; n < some; ++n)
      std::memcpy(c.row(i + n) + columns.begin, buffer + n * kSplitPanel, bytes);
  }
}

// Splits a block of A, or its first pair of row tiles, and lists the others, pair by pair.
template <typename T, typename A>
SplitAhead<T> split_block(const A& a,
                          const TileKernels<T>& kernels,
                          Range rows,
                          Range chunks,
                          uint16_t* to,
                          SplitJobs<T>& jobs) {
  const int64_t stride = chunks.size() * kTileElems<T>;
  if constexpr (requires { a.pack(kernels, rows, chunks, to); }) {
    if (!a.as_rows()) {
      // One chunk after the other, so that its rows are read once and in order.
      for (int64_t k = chunks.begin; k < chunks.end; ++k) {
        for (int64_t i = rows.begin; i < rows.end; i += kTileEdge) {
          a.pack(kernels,
                 Range{i, std::min(rows.end, i + kTileEdge)},
                 Range{k, k + 1},
                 to + (i - rows.begin) / kTileEdge * stride + (k - chunks.begin) * kTileElems<T>);
        }
      }
      return {};
    }
  }
  int64_t count = 0, of_tile = 0;
  for (int64_t i = rows.begin; i < rows.end; i += kTileEdge, count += of_tile) {
    of_tile = a.list(Range{i, std::min(rows.end, i + kTileEdge)},
                     chunks,
                     jobs.rows + count * kTileEdge,
                     jobs.tiles + count,
                     to + (i - rows.begin) / kTileEdge * stride);
  }
  const int64_t first = std::min(count, 2 * of_tile);
  kernels.split_rows(jobs.tiles, first);
  return {{jobs.tiles + first, static_cast<size_t>(count - first)}, 2 * of_tile};
}

// c = a b, or c += a b, for `rows` x `columns`, over a depth of `chunks` > 0.
//   A::Number: the type of the numbers of both operands;
//   a.as_rows(): whether rows of A are contiguous in memory;
//   if so, a.list(rows, chunks, pointers, tiles, to): lists the tiles of up to 16 rows, to be split
//     to `to`, with 16 pointers for each entry, and returns the number of entries, which is the
//     same for any number of rows;
//   else a.pack(kernels, rows, chunks, to): splits the tiles; A need not have it if as_rows() is
//     always true;
//   b.pack(kernels, columns, chunks, to, stride): splits up to 16 columns; a tile of B for each
//     chunk, with `stride` elements between consecutive tiles;
//   b.as_rows(): whether rows of B (one for each depth) are contiguous in memory; if so,
//     b.list(columns, chunks, pointers, tiles, to): lists the tiles of up to 32 columns, by
//     chunks, and b.fetcher(columns, chunks, calls) prefetches their data;
//   c.row(i): pointer to row i of the result; c.stride(): elements between consecutive rows, or 0
//     if it is not the same for all; c.finish(rows, columns): called when these sums are complete.
template <typename A, typename B, typename C>
void multiply_rectangle(const A& a,
                        const B& b,
                        const C& c,
                        Range rows,
                        Range columns,
                        int64_t chunks,
                        bool accumulate,
                        uint16_t* scratch) {
  using T = typename A::Number;
  const TileKernels<T>& kernels = tile_kernels<T>();
  const SplitScratch<T> sizes(rows.size(), columns.size(), chunks);
  uint16_t* const packed_a = scratch;
  uint16_t* const packed_b = scratch + sizes.packed_a;
  SplitJobs<T> of_a, of_b;
  for (int64_t j = columns.begin; j < columns.end; j += kSplitKeptColumns) {
    const Range kept_columns{j, std::min(columns.end, j + kSplitKeptColumns)};
    const int64_t panels = ceil_div(kept_columns.size(), kSplitPanel);
    const auto panel_columns = [&](int64_t panel) {
      const int64_t first = j + panel * kSplitPanel;
      return Range{first, std::min(kept_columns.end, first + kSplitPanel)};
    };
    for (int64_t k = 0; k < chunks; k += kSplitKeptChunks) {
      const Range kept{k, std::min(chunks, k + kSplitKeptChunks)};
      const EvenBlocks depth(kept, 1, kSplitBlockChunks);
      const EvenBlocks row_blocks(rows, kSplitRowUnit, max_row_units<T>(depth.step));
      const bool keep = row_blocks.count() > 1;
      for (int64_t i = 0; i < row_blocks.count(); ++i) {
        const Range block = row_blocks[i];
        for (int64_t n = 0; n < depth.count(); ++n) {
          const Range some = depth[n];
          // Panels that are not kept use two buffers in turns.
          const auto panel_data = [&](int64_t panel) {
            const int64_t tiles =
                keep ? panel * kept.size() + some.begin - k : panel % 2 * depth.step;
            return packed_b + tiles * 2 * kTileElems<T>;
          };
          const SplitAhead<T> rest = split_block(a, kernels, block, some, packed_a, of_a);
          // Prefetches the rows of B that are split after this block, a part of each at a time: the
          // hardware prefetcher does not predict them.
          const int64_t calls =
              panels * ceil_div(block.size(), kSplitRowUnit) * std::max<int64_t>(1, some.size());
          RowFetcher fetcher;
          if (!a.as_rows() && b.as_rows() && i == 0 && some.end < chunks) {
            const int64_t end = std::min(chunks, some.end + some.size());
            fetcher = b.fetcher(kept_columns, Range{some.end, end}, calls);
          }
          bool ready = i > 0;  // the panel has been split already
          for (int64_t panel = 0; panel < panels; ++panel) {
            const Range mine = panel_columns(panel);
            const int64_t tiles = ceil_div(mine.size(), kTileEdge);
            for (int64_t tile = 0; tile < tiles && !ready; ++tile) {
              const int64_t column = mine.begin + tile * kTileEdge;
              b.pack(kernels,
                     Range{column, std::min(mine.end, column + kTileEdge)},
                     some,
                     panel_data(panel) + tile * kTileElems<T>,
                     tiles * kTileElems<T>);
            }
            SplitAhead<T> ahead = panel == 0 ? rest : SplitAhead<T>{};
            ready = i > 0;
            if (!ready && ahead.tiles.empty() && b.as_rows() && panel + 1 < panels) {
              const int64_t count = b.list(
                  panel_columns(panel + 1), some, of_b.rows, of_b.tiles, panel_data(panel + 1));
              ahead = {{of_b.tiles, static_cast<size_t>(count)}};
              ready = true;
            }
            multiply_panel<T>(kernels,
                              {.row_tiles = 0,
                               .column_tiles = tiles,
                               .chunks = some.size(),
                               .a = packed_a,
                               .a_stride = some.size() * kTileElems<T>,
                               .b = panel_data(panel),
                               .c = nullptr,
                               .c_stride = 0,
                               .accumulate = accumulate || some.begin > 0,
                               .fetcher = &fetcher},
                              block,
                              mine,
                              c,
                              ahead);
            if (some.end == chunks) c.finish(block, mine);
          }
        }
      }
    }
  }
}

// Computes the full product on compute_threads() threads; `workspace` is aligned to 64 bytes.
template <typename A, typename B, typename C>
void multiply_all(const A& a,
                  const B& b,
                  const C& c,
                  int64_t rows,
                  int64_t columns,
                  int64_t chunks,
                  bool accumulate,
                  void* workspace) {
  const WorkerGrid grid = split_workers(compute_threads(), rows, columns, chunks);
  const int64_t bytes = SplitScratch<typename A::Number>(rows, columns, chunks, grid).bytes();
  for_each_worker(grid.workers(), [&](int64_t worker) {
    multiply_rectangle(a,
                       b,
                       c,
                       share(rows, kSplitRowUnit, worker / grid.columns, grid.rows),
                       share(columns, kSplitPanel, worker % grid.columns, grid.columns),
                       chunks,
                       accumulate,
                       reinterpret_cast<uint16_t*>(static_cast<char*>(workspace) + worker * bytes));
  });
}

// Scratch memory of multiply_all() on `threads` threads, in bytes; the same on every machine.
template <typename T = float>
int64_t split_workspace_bytes(int64_t rows, int64_t columns, int64_t chunks, int threads) {
  if (rows == 0 || columns == 0 || chunks == 0) return 0;
  const WorkerGrid grid = split_workers(threads, rows, columns, chunks);
  return grid.workers() * SplitScratch<T>(rows, columns, chunks, grid).bytes();
}

}  // namespace lockstep::cpu
