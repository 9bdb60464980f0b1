#include <algorithm>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/gemm_block.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Whether rows of a are packed. It costs about as much as a pass over them by the tiles, and is not
// needed where they can be read as they lie: unless they are so far apart that what a tile reads
// competes for the same cache lines.
HWY_INLINE bool packs_rows(GemmOperand a, size_t columns) {
  if (a.transposed) return columns > (a.stride < 256 ? 2 : 1) * kPanel;
  return a.stride % 1024 == 0 && columns > kPanel;
}

// Rows of a that are packed at a time, while those after them are fetched.
HWY_INLINE size_t rows_packed_together(GemmOperand a) {
  return a.transposed ? 4 * kTileRows : kTileRows;
}

void multiply_block(size_t rows,
                    size_t columns,
                    size_t depth,
                    GemmOperand a,
                    const Panels& panels,
                    Result c,
                    bool accumulate,
                    float* packed_a) {
  const bool pack_a = packs_rows(a, columns);
  const size_t rows_together = rows_packed_together(a);
  for (size_t j = 0; j < columns; j += kPanel) {
    const size_t panel_columns = std::min(columns - j, kPanel);
    const size_t vectors = ceil_div(panel_columns, kVecLanes);
    const size_t width = vectors * kVecLanes;
    const bool whole = c.padded || panel_columns == width;

    Prefetcher next_panel, next_rows;
    Tiles tiles{};
    tiles.depth = depth;
    tiles.b = panels.ready + j * depth;
    tiles.b_stride = width;
    tiles.c_stride = c.stride;
    tiles.accumulate = accumulate;
    tiles.next_panel = &next_panel;
    tiles.next_rows = &next_rows;
    bool pack_b = false;  // by the first tile
    if (panels.ready == nullptr) {
      const GemmOperand b = panels.b.at(0, j);
      tiles.pack_b = panels.buffer + (panels.keep ? j * depth : 0);
      if (b.transposed || !whole || (panels.keep && rows < kTileRows)) {
        pack_panel(b, panel_columns, depth, tiles.pack_b);
        tiles.b = tiles.pack_b;
      } else {
        tiles.b = b.data;
        tiles.b_stride = b.stride;
        // A lower tile is the only one: it uses b where it lies.
        pack_b = !panels.in_place && rows >= kTileRows;
      }
      if (j + kPanel < columns) {
        next_panel = Prefetcher(panels.b.at(0, j + kPanel),
                                depth,
                                std::min(columns - j - kPanel, kPanel),
                                ceil_div(rows, kTileRows));
      }
    }

    const size_t rows_after = rows - std::min(rows, kTileRows);  // the first tile
    if (j == 0 && !pack_a && !a.transposed && rows_after > 0) {
      next_rows =
          Prefetcher(a.at(kTileRows, 0), rows_after, depth, ceil_div(rows_after, kTileRows));
    }

    for (size_t i = 0; i < rows;) {
      // All tiles of full height at once, but one by one while an operand is being packed.
      const size_t tile_rows = std::min(rows - i, kTileRows);
      const bool one = (j == 0 && pack_a) || pack_b || !whole;
      tiles.tiles = one ? 1 : (rows - i) / tile_rows;
      if (j == 0 && pack_a && i % rows_together == 0) {
        const size_t some = std::min(rows - i, rows_together), after = i + some;
        pack_rows(a.at(i, 0), some, depth, packed_a + i * depth);
        next_rows = after == rows ? Prefetcher()
                                  : Prefetcher(a.at(after, 0),
                                               std::min(rows - after, rows_together),
                                               depth,
                                               rows_together / kTileRows);
      }
      tiles.a = pack_a ? packed_a + i * depth : a.at(i, 0).data;
      tiles.a_stride = pack_a ? tile_rows : a.stride;
      tiles.a_step = tile_rows * (pack_a ? depth : a.transposed ? 1 : a.stride);
      tiles.c = c.data + i * c.stride + j;
      const TileKernel kernel = tile_kernel(pack_a || a.transposed, pack_b, vectors, tile_rows);
      if (whole) {
        kernel(tiles);
      } else {
        multiply_edge_tile(kernel, tiles, tile_rows, panel_columns);
      }
      if (pack_b) {
        tiles.b = tiles.pack_b;
        tiles.b_stride = width;
        pack_b = false;
      }
      i += tiles.tiles * tile_rows;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();
