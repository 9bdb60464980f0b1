// The inner kernels of matrix products, compiled once per instruction set (include it only from a
// .cc file that Highway's foreach_target.h includes repeatedly).
//
// A tile of the result, kTileRows x kPanel elements, lives in registers while the kernel walks over
// the depth: each step loads one row of a panel of B (two vectors) and multiplies it by one element
// of each row of A, broadcast. Panels of B are packed so that their rows follow each other in
// memory; rows of A may be packed, depth-major, or used where they lie.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_GEMM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_GEMM_INL_H
#undef LOCKSTEP_RUNTIME_CPU_GEMM_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_GEMM_INL_H
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/gemm_blocking.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// The tile fills the register file: 12 x 2 accumulators of 32 vectors with AVX-512, 6 x 2 of 16
// with AVX2.
constexpr size_t kTileRows = kVecLanes == 16 ? 12 : kVecLanes == 8 ? 6 : 4;
constexpr size_t kTileVectors = 2;
constexpr size_t kPanel = kTileVectors * kVecLanes;
static_assert(kPanel <= kMaxPanel && kStripRows % kTileRows == 0);
static_assert(kTileRows <= kVecLanes || kVecLanes == 1);  // pack_rows stores one vector a step

// ---- The tile

// c(kRows, kVectors * kVecLanes) = (accumulate ? c : 0) + a b over `depth`. Element (i, k) of a is
// a[i * a_stride + k], or a[k * a_stride + i] when kDepthMajor; row k of b is at b + k * b_stride.
template <size_t kRows, size_t kVectors, bool kDepthMajor>
HWY_NOINLINE void multiply_tile(size_t depth,
                                const float* HWY_RESTRICT a,
                                size_t a_stride,
                                const float* HWY_RESTRICT b,
                                size_t b_stride,
                                float* HWY_RESTRICT c,
                                size_t c_stride,
                                bool accumulate) {
  const F32 d;
  Vec sum[kRows][kVectors];
  HWY_UNROLL(16)
  for (size_t i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) {
      sum[i][v] = accumulate ? hn::LoadU(d, c + i * c_stride + v * kVecLanes) : hn::Zero(d);
    }
  }
  for (size_t k = 0; k < depth; ++k) {
    Vec row[kVectors];
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * kVecLanes);
    b += b_stride;
    HWY_UNROLL(16)
    for (size_t i = 0; i < kRows; ++i) {
      const Vec factor = hn::Set(d, kDepthMajor ? a[i] : a[i * a_stride + k]);
      HWY_UNROLL(4)
      for (size_t v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(factor, row[v], sum[i][v]);
    }
    if (kDepthMajor) a += a_stride;
  }
  HWY_UNROLL(16)
  for (size_t i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[i][v], d, c + i * c_stride + v * kVecLanes);
    }
  }
}

using TileKernel =
    void (*)(size_t, const float*, size_t, const float*, size_t, float*, size_t, bool);

template <bool kDepthMajor, size_t kVectors, size_t... kRows>
constexpr std::array<TileKernel, sizeof...(kRows)> tile_kernels(std::index_sequence<kRows...>) {
  return {multiply_tile<kRows + 1, kVectors, kDepthMajor>...};
}

// The kernel for a tile of `rows` rows and `vectors` vectors.
HWY_INLINE TileKernel tile_kernel(bool depth_major, size_t rows, size_t vectors) {
  constexpr auto kAll = std::make_index_sequence<kTileRows>();
  static constexpr std::array<TileKernel, kTileRows> kKernels[2][kTileVectors] = {
      {tile_kernels<false, 1>(kAll), tile_kernels<false, 2>(kAll)},
      {tile_kernels<true, 1>(kAll), tile_kernels<true, 2>(kAll)}};
  return kKernels[depth_major][vectors - 1][rows - 1];
}

// ---- Packing

#if HWY_TARGET != HWY_SCALAR
// Four elements of each of kVecLanes rows: block b of the result is from row 4 b.
template <class D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const float* const* rows, size_t column) {
  constexpr size_t kLanes = hn::MaxLanes(D());
  if constexpr (kLanes == 4) {
    return hn::LoadU(d, rows[0] + column);
  } else {
    const hn::Half<D> half;
    return hn::Combine(
        d, load_blocks(half, rows + kLanes / 2, column), load_blocks(half, rows, column));
  }
}

// out[c] = elements column + c of the kVecLanes rows, one row a lane.
HWY_INLINE void load_transposed_4(const float* const* rows, size_t column, Vec* HWY_RESTRICT out) {
  const F32 d;
  const hn::RepartitionToWide<hn::RebindToUnsigned<F32>> pairs;
  const Vec r0 = load_blocks(d, rows, column);
  const Vec r1 = load_blocks(d, rows + 1, column);
  const Vec r2 = load_blocks(d, rows + 2, column);
  const Vec r3 = load_blocks(d, rows + 3, column);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
  out[0] = hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23));
  out[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23));
  out[2] = hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23));
  out[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23));
}
#endif

// to[k * to_stride + i] = from[i * from_stride + k] for i < rows <= kVecLanes, k < depth. Stores
// whole vectors: lanes from `rows` on repeat the last row, and what follows them is overwritten, up
// to kVecLanes elements from the beginning of the last k.
HWY_INLINE void pack_transposed(
    const float* from, size_t from_stride, size_t rows, size_t depth, float* to, size_t to_stride) {
  size_t k = 0;
#if HWY_TARGET != HWY_SCALAR
  const float* row[kVecLanes];
  for (size_t i = 0; i < kVecLanes; ++i) row[i] = from + std::min(i, rows - 1) * from_stride;
  for (; k + 4 <= depth; k += 4) {
    Vec out[4];
    load_transposed_4(row, k, out);
    HWY_UNROLL(4)
    for (size_t c = 0; c < 4; ++c) hn::StoreU(out[c], F32(), to + (k + c) * to_stride);
  }
#endif
  for (; k < depth; ++k) {
    for (size_t i = 0; i < kVecLanes; ++i) {
      to[k * to_stride + i] = from[std::min(i, rows - 1) * from_stride + k];
    }
  }
}

// Packs a tile of A, `rows` <= kTileRows, depth-major: to[k * rows + i] = element (i, k). May write
// kVecLanes elements past the end of `to`.
HWY_INLINE void pack_rows(GemmOperand a, size_t rows, size_t depth, float* HWY_RESTRICT to) {
  if (a.transposed) {
    for (size_t k = 0; k < depth; ++k) {
      const float* from = a.data + k * a.stride;
      if (rows == kTileRows) {
        std::memcpy(to + k * kTileRows, from, kTileRows * sizeof(float));
      } else {
        for (size_t i = 0; i < rows; ++i) to[k * rows + i] = from[i];
      }
    }
    return;
  }
  for (size_t i = 0; i < rows; i += kVecLanes) {
    pack_transposed(
        a.data + i * a.stride, a.stride, std::min(rows - i, kVecLanes), depth, to + i, rows);
  }
}

// Packs the columns [0, columns) of B, columns <= kPanel, as one panel: row k is at to + k * width,
// width = columns rounded up to whole vectors. Lanes past `columns` repeat a value of the row.
HWY_INLINE void pack_panel(GemmOperand b, size_t columns, size_t depth, float* HWY_RESTRICT to) {
  const size_t width = round_up(columns, kVecLanes);
  if (b.transposed) {
    for (size_t j = 0; j < width; j += kVecLanes) {
      pack_transposed(
          b.data + j * b.stride, b.stride, std::min(columns - j, kVecLanes), depth, to + j, width);
    }
    return;
  }
  for (size_t k = 0; k < depth; ++k) {
    const float* from = b.data + k * b.stride;
    if (columns == kPanel) {
      const F32 d;
      HWY_UNROLL(4)
      for (size_t v = 0; v < kPanel; v += kVecLanes) {
        hn::StoreU(hn::LoadU(d, from + v), d, to + k * kPanel + v);
      }
    } else {
      for (size_t j = 0; j < width; ++j) to[k * width + j] = from[std::min(j, columns - 1)];
    }
  }
}

// Packs one worker's part of the panels of B(depth, columns): the depth blocks follow each other,
// and within a block its panels.
HWY_INLINE void pack_panels(GemmOperand b, size_t columns, DepthBlocks blocks, float* to,
                            int64_t worker, int64_t workers) {
  const size_t panels = ceil_div(columns, kPanel);
  const size_t padded_columns = round_up(columns, kVecLanes);
  if (b.transposed) {
    const Range mine = share(panels * blocks.count(), 1, worker, workers);
    for (int64_t unit = mine.begin; unit < mine.end; ++unit) {
      const size_t j = unit % panels * kPanel;
      const Range block = blocks.range(unit / panels);
      pack_panel(b.at(block.begin, j), std::min(columns - j, kPanel), block.size(),
                 to + block.begin * padded_columns + j * block.size());
    }
    return;
  }
  // A few rows of all panels at a time, so that the rows are read from end to end.
  constexpr int64_t kRows = 8;
  const Range mine = share(blocks.depth, kRows, worker, workers);
  for (int64_t k = mine.begin; k < mine.end;) {
    const Range block = blocks.range(k / blocks.length);
    const int64_t rows = std::min({kRows, block.end - k, mine.end - k});
    float* const block_to = to + block.begin * padded_columns;
    for (size_t j = 0; j < columns; j += kPanel) {
      const size_t panel_columns = std::min(columns - j, kPanel);
      pack_panel(b.at(k, j), panel_columns, rows,
                 block_to + j * block.size() +
                     (k - block.begin) * round_up(panel_columns, kVecLanes));
    }
    k += rows;
  }
}

// ---- A strip of rows times some panels, over one depth block

// Where the panels of one depth block are: packed one after the other, or still in B, to be packed
// (or used in place) when they are needed.
struct Panels {
  GemmOperand b;                  // the block within B, when packed is null
  const float* packed = nullptr;  // panels of depth x kPanel, the last one narrower
  bool in_place = false;  // b is in the cache and readable up to whole vectors: never pack it
};

// Where the results go. A padded buffer may be written up to whole vectors.
struct Result {
  float* data;
  size_t stride;
  bool padded;
};

// Runs one tile whose last columns are missing in c: computes in a buffer and copies what exists.
inline HWY_NOINLINE void multiply_edge_tile(TileKernel kernel,
                                            size_t depth,
                                            const float* a,
                                            size_t a_stride,
                                            const float* b,
                                            size_t b_stride,
                                            float* c,
                                            size_t c_stride,
                                            bool accumulate,
                                            size_t rows,
                                            size_t columns) {
  alignas(64) float tile[kTileRows * kPanel] = {};
  if (accumulate) {
    for (size_t i = 0; i < rows; ++i) {
      std::memcpy(tile + i * kPanel, c + i * c_stride, columns * sizeof(float));
    }
  }
  kernel(depth, a, a_stride, b, b_stride, tile, kPanel, accumulate);
  for (size_t i = 0; i < rows; ++i) {
    std::memcpy(c + i * c_stride, tile + i * kPanel, columns * sizeof(float));
  }
}

// c(rows, columns) (+)= a(rows, depth) b(depth, columns), rows <= kStripRows, depth <= kDepthBlock.
// `scratch` has kStripScratch + kPanelScratch floats.
HWY_INLINE void multiply_strip(size_t rows,
                               size_t columns,
                               size_t depth,
                               GemmOperand a,
                               const Panels& panels,
                               Result c,
                               bool accumulate,
                               float* scratch) {
  const auto tile = [&](size_t i, size_t j, const float* tile_a, size_t a_stride, bool depth_major,
                        const float* panel, size_t panel_stride) HWY_ATTR {
    const size_t tile_rows = std::min(rows - i, kTileRows);
    const size_t tile_columns = std::min(columns - j, kPanel);
    const size_t vectors = ceil_div(tile_columns, kVecLanes);
    const TileKernel kernel = tile_kernel(depth_major, tile_rows, vectors);
    float* const tile_c = c.data + i * c.stride + j;
    if (c.padded || tile_columns == vectors * kVecLanes) {
      kernel(depth, tile_a, a_stride, panel, panel_stride, tile_c, c.stride, accumulate);
    } else {
      multiply_edge_tile(kernel, depth, tile_a, a_stride, panel, panel_stride, tile_c, c.stride,
                         accumulate, tile_rows, tile_columns);
    }
  };

  if (panels.packed != nullptr || panels.in_place) {
    // Each tile of A stays in the first-level cache while all panels pass by.
    const bool pack_a = columns > (a.transposed ? 2 : 6) * kPanel;
    for (size_t i = 0; i < rows; i += kTileRows) {
      const GemmOperand tile_a = a.at(i, 0);
      const size_t tile_rows = std::min(rows - i, kTileRows);
      if (pack_a) pack_rows(tile_a, tile_rows, depth, scratch);
      const size_t lines = i + kTileRows >= rows ? 0 : ceil_div(depth, 16);  // per row
      size_t next = 0;
      const GemmOperand next_a = a.at(i + kTileRows, 0);
      const size_t each = a.transposed ? ceil_div(depth, ceil_div(columns, kPanel)) : ceil_div(lines * kTileRows, ceil_div(columns, kPanel));
      for (size_t j = 0; j < columns; j += kPanel) {
        const float* panel = panels.packed != nullptr ? panels.packed + j * depth : panels.b.data + j;
        const size_t panel_stride =
            panels.packed != nullptr
                ? round_up(std::min(columns - j, kPanel), kVecLanes)
                : panels.b.stride;
        if (lines) {
          if (a.transposed) {
            const size_t end = std::min(depth, next + each);
            for (; next < end; ++next) { hwy::Prefetch(next_a.data + next * a.stride); hwy::Prefetch(next_a.data + next * a.stride + 11);}
          } else {
            const size_t end = std::min(lines * kTileRows, next + each);
            for (; next < end; ++next) hwy::Prefetch(next_a.data + next % kTileRows * a.stride + next / kTileRows * 16);
          }
        }
        tile(i, j, pack_a ? scratch : tile_a.data, pack_a ? tile_rows : tile_a.stride,
             pack_a || a.transposed, panel, panel_stride);
      }
    }
    return;
  }

  // Packing A costs about as much as one pass over it by the tiles: it pays from a few panels on.
  const bool pack_a = columns > (a.transposed ? 2 : 6) * kPanel;
  // A panel that only a few tiles use is cheaper to read in place than to copy.
  const bool pack_b = panels.b.transposed || rows > 2 * kTileRows;
  float* const packed_a = scratch;
  float* const packed_b = scratch + kStripScratch;
  if (pack_a) {
    for (size_t i = 0; i < rows; i += kTileRows) {
      pack_rows(a.at(i, 0), std::min(rows - i, kTileRows), depth, packed_a + i * depth);
    }
  }
  for (size_t j = 0; j < columns; j += kPanel) {
    const size_t panel_columns = std::min(columns - j, kPanel);
    const GemmOperand from = panels.b.at(0, j);
    const float* panel = from.data;
    size_t panel_stride = from.stride;
    if (pack_b || panel_columns % kVecLanes != 0) {
      pack_panel(from, panel_columns, depth, packed_b);
      panel = packed_b;
      panel_stride = round_up(panel_columns, kVecLanes);
    }
    for (size_t i = 0; i < rows; i += kTileRows) {
      tile(i, j, pack_a ? packed_a + i * depth : a.at(i, 0).data,
           pack_a ? std::min(rows - i, kTileRows) : a.stride, pack_a || a.transposed, panel,
           panel_stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_GEMM_INL_H
