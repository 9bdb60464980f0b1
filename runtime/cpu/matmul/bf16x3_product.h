#pragma once
// How products of split floats (bf16x3.h) are cut into pieces that the caches hold. No choice made
// here changes a bit of a result.
//
// A block of rows of A, some chunks deep, is split and stays in the second-level cache while panels
// of B, two tiles wide, pass by. If there are more blocks of rows, the split panels of B are kept
// for them. Each worker does this alone for its rectangle of the result.

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

// A range cut into nearly equal blocks of at most `most` units.
struct EvenBlocks {
  EvenBlocks(Range range, int64_t unit, int64_t most) : range(range) {
    const int64_t units = ceil_div(range.size(), unit);
    step =
        std::max<int64_t>(1, ceil_div(units, ceil_div(std::max<int64_t>(1, units), most))) * unit;
  }
  int64_t count() const { return ceil_div(range.size(), step); }
  Range operator[](int64_t block) const {
    const int64_t begin = range.begin + block * step;
    return {begin, std::min(range.end, begin + step)};
  }
  Range range;
  int64_t step;
};

// Row tiles, in pairs, of a block of A so many chunks deep.
inline int64_t most_row_units(int64_t chunks) {
  return std::clamp<int64_t>(
      kSplitBlockElems / (2 * kSplitElems * std::max<int64_t>(1, chunks)), 1, 24);
}

inline WorkerGrid split_workers(int64_t threads, int64_t rows, int64_t columns, int64_t chunks) {
  return arrange_workers(threads, rows, columns, chunks * kTileDepth, kSplitRowUnit);
}

// One worker's scratch memory, in elements.
struct SplitScratch {
  SplitScratch(int64_t rows, int64_t columns, int64_t chunks) {
    const int64_t kept = std::min(chunks, kSplitKeptChunks);
    const int64_t block = EvenBlocks({0, kept}, 1, kSplitBlockChunks).step;
    const int64_t row_units = ceil_div(rows, kSplitRowUnit);
    const bool keep = row_units > most_row_units(block);
    packed_a = keep ? kSplitBlockElems : row_units * 2 * block * kSplitElems;
    packed_b =
        (keep ? ceil_div(std::min(columns, kSplitKeptColumns), kSplitPanel) * kept : 2 * block) *
        2 * kSplitElems;
  }
  SplitScratch(int64_t rows, int64_t columns, int64_t chunks, WorkerGrid grid)
      : SplitScratch(grid.most_rows(rows, kSplitRowUnit), grid.most_columns(columns), chunks) {}
  int64_t elems() const { return packed_a + packed_b; }
  int64_t bytes() const { return elems() * static_cast<int64_t>(sizeof(uint16_t)); }

  int64_t packed_a, packed_b;
};

// A block of A and what is known of splitting it.
struct SplitJobs {
  using Split = Bf16x3Kernels::Split;
  static constexpr int64_t kMostTiles = kSplitBlockElems / kSplitElems + 2 * kSplitBlockChunks;

  Split tiles[kMostTiles];
  const float* rows[kMostTiles * kTileEdge];
};

// Tiles that are split while others are multiplied.
struct SplitAhead {
  std::span<const Bf16x3Kernels::Split> tiles;
  int64_t of_pair = 0;  // entries of A for each pair of row tiles; 0: they are of B
};

// Multiplies the tiles of a panel and a block of rows, and puts those sums that do not fill tiles,
// or whose rows do not lie one after the other, in place. Tiles of A that are split ahead are those
// of the row tiles from the second pair on.
template <typename C>
void multiply_panel(const Bf16x3Kernels& kernels,
                    Bf16x3Kernels::Tiles tiles,
                    Range rows,
                    Range columns,
                    const C& c,
                    SplitAhead ahead) {
  const int64_t pairs = ceil_div(rows.size(), kSplitRowUnit);
  const bool direct = columns.size() % kTileEdge == 0 && c.stride() > 0;
  // The tiles to split while pairs [begin, end) are multiplied.
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
  const int64_t whole = direct ? rows.size() / kSplitRowUnit : 0;  // pairs
  const uint16_t* const a = tiles.a;
  if (whole > 0) {
    set_next(0, whole);
    tiles.row_tiles = 2 * whole;
    tiles.c = c.row(rows.begin) + columns.begin;
    tiles.c_stride = c.stride();
    kernels.multiply(tiles);
  }
  alignas(64) float buffer[kSplitRowUnit * kSplitPanel];
  const size_t bytes = static_cast<size_t>(columns.size()) * sizeof(float);
  tiles.c = buffer;
  tiles.c_stride = kSplitPanel;
  for (int64_t pair = whole; pair < pairs; ++pair) {
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
template <typename A>
SplitAhead split_block(const A& a,
                       const Bf16x3Kernels& kernels,
                       Range rows,
                       Range chunks,
                       uint16_t* to,
                       SplitJobs& jobs) {
  const int64_t stride = chunks.size() * kSplitElems;
  if constexpr (requires { a.pack(kernels, rows, chunks, to); }) {
    if (!a.as_rows()) {
      // One chunk after the other: its rows are read once, as they lie.
      for (int64_t k = chunks.begin; k < chunks.end; ++k) {
        for (int64_t i = rows.begin; i < rows.end; i += kTileEdge) {
          a.pack(kernels,
                 Range{i, std::min(rows.end, i + kTileEdge)},
                 Range{k, k + 1},
                 to + (i - rows.begin) / kTileEdge * stride + (k - chunks.begin) * kSplitElems);
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
//   a.as_rows(): whether rows of A lie in memory as rows;
//   if so, a.list(rows, chunks, pointers, tiles, to): lists the tiles of up to 16 rows, as many
//     entries for all such rows, to be split to `to`, with 16 pointers for each entry, and returns
//     how many entries;
//   else a.pack(kernels, rows, chunks, to), which A need not have if it never happens: splits them;
//   b.pack(kernels, columns, chunks, to, stride): splits up to 16 columns; a tile of B for each
//     chunk, `stride` elements from one to the next;
//   b.as_rows(): whether rows of B, of the depth, lie in memory as rows; if so, b.list(columns,
//     chunks, pointers, tiles, to): lists the tiles of up to 32 columns, by chunks, and
//     b.fetcher(columns, chunks, calls) fetches what they are made of;
//   c.row(i): where row i of the result begins; c.stride(): elements from each row to the next, or
//     0 where that differs; c.finish(rows, columns): called when these sums are complete.
template <typename A, typename B, typename C>
void multiply_rectangle(const A& a,
                        const B& b,
                        const C& c,
                        Range rows,
                        Range columns,
                        int64_t chunks,
                        bool accumulate,
                        uint16_t* scratch) {
  const Bf16x3Kernels& kernels = bf16x3_kernels();
  const SplitScratch sizes(rows.size(), columns.size(), chunks);
  uint16_t* const packed_a = scratch;
  uint16_t* const packed_b = scratch + sizes.packed_a;
  SplitJobs of_a, of_b;
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
      const EvenBlocks row_blocks(rows, kSplitRowUnit, most_row_units(depth.step));
      const bool keep = row_blocks.count() > 1;
      for (int64_t i = 0; i < row_blocks.count(); ++i) {
        const Range block = row_blocks[i];
        for (int64_t n = 0; n < depth.count(); ++n) {
          const Range some = depth[n];
          // Panels that are not kept lie in two places in turns.
          const auto place = [&](int64_t panel) {
            const int64_t tiles =
                keep ? panel * kept.size() + some.begin - k : panel % 2 * depth.step;
            return packed_b + tiles * 2 * kSplitElems;
          };
          const SplitAhead rest = split_block(a, kernels, block, some, packed_a, of_a);
          // Rows of B that are split after this block, a part of each at a time: the processor does
          // not see them coming.
          const int64_t calls =
              panels * ceil_div(block.size(), kSplitRowUnit) * std::max<int64_t>(1, some.size());
          RowFetcher fetcher;
          if (!a.as_rows() && b.as_rows() && i == 0 && some.end < chunks) {
            const int64_t end = std::min(chunks, some.end + some.size());
            fetcher = b.fetcher(kept_columns, Range{some.end, end}, calls);
          }
          bool ready = i > 0;  // the panel has been split
          for (int64_t panel = 0; panel < panels; ++panel) {
            const Range mine = panel_columns(panel);
            const int64_t tiles = ceil_div(mine.size(), kTileEdge);
            for (int64_t tile = 0; tile < tiles && !ready; ++tile) {
              const int64_t column = mine.begin + tile * kTileEdge;
              b.pack(kernels,
                     Range{column, std::min(mine.end, column + kTileEdge)},
                     some,
                     place(panel) + tile * kSplitElems,
                     tiles * kSplitElems);
            }
            SplitAhead ahead = panel == 0 ? rest : SplitAhead{};
            ready = i > 0;
            if (!ready && ahead.tiles.empty() && b.as_rows() && panel + 1 < panels) {
              const int64_t count =
                  b.list(panel_columns(panel + 1), some, of_b.rows, of_b.tiles, place(panel + 1));
              ahead = {{of_b.tiles, static_cast<size_t>(count)}};
              ready = true;
            }
            multiply_panel(kernels,
                           {.row_tiles = 0,
                            .column_tiles = tiles,
                            .chunks = some.size(),
                            .a = packed_a,
                            .a_stride = some.size() * kSplitElems,
                            .b = place(panel),
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

// The whole product on compute_threads() threads; `workspace` is aligned to 64 bytes.
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
  const int64_t bytes = SplitScratch(rows, columns, chunks, grid).bytes();
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

// Scratch memory of multiply_all() on so many threads; the same on every machine.
inline int64_t split_workspace_bytes(int64_t rows, int64_t columns, int64_t chunks, int threads) {
  if (rows == 0 || columns == 0 || chunks == 0) return 0;
  const WorkerGrid grid = split_workers(threads, rows, columns, chunks);
  return grid.workers() * SplitScratch(rows, columns, chunks, grid).bytes();
}

}  // namespace lockstep::cpu
