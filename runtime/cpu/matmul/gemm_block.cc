// The inner loops of a blocked matrix product (Goto and van de Geijn, "Anatomy of High-Performance
// Matrix Multiplication", 2008), and the packing that they use; gemm.cc has the outer loops.
//
// multiply_block() computes c (+)= a b for a block of rows of A that fits into the second-level
// cache. B is cut into panels of kPanel columns, the rows of A into tiles of kTileRows rows:
//
//                      b:  panel 0 | panel 1 | ...       for each panel (j):
//   a:  tile 0             c tile  | c tile  |             for each tile (i):
//       tile 1             c tile  | c tile  |               c tile (+)= tile of a * panel of b
//
// The tile kernel (gemm_tile.cc) goes over the whole depth with its tile of c in registers. The
// operands are prepared as follows:
// - Packing of A: if enough panels will reuse A (packs_rows()), its rows are packed during the
//   first panel, just before the first tile that reads them. Later panels read `packed_a`, and so
//   does every panel if the caller has packed them (`rows_packed`).
// - Packing of B: `panels.ready` has panels that an earlier call has packed. Otherwise the first
//   panel is packed before its tiles, and each following one, a few rows at a time, by the tiles of
//   the panel before it (PanelPacker); a transposed or partial one just before its tiles.
// - Prefetching: `next_panel` fetches the panel after this one unless it is packed meanwhile.
//   `next_other` fetches the rows of A that come next or, after the first panel, the memory that
//   the next panel is packed to.
// - Finishing: complete sums are handed to `finish` some panels at a time, while they are in the
//   cache; `reads` and `writes` fetch what it needs beside them.
//
// The invariant (gemm.h): each element of c is one chain of fused multiply-adds over the depth in
// increasing order, because a kernel has one accumulator per element and starts from zero or from
// c. Packing, tiles and panels only move data, so no choice made here changes a bit.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "runtime/cpu/matmul/bf16_dot.h"
#include "runtime/cpu/matmul/flush_to_zero.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/matmul/gemm_block.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/matmul/gemm-inl.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

static_assert(kTileRows <= kVecLanes || kVecLanes == 1);  // pack_tile stores one vector per step

template <typename T>
void pack_transposed(
    const T* from, size_t from_stride, size_t rows, size_t depth, float* to, size_t to_stride) {
  size_t k = 0;
#if HWY_TARGET != HWY_SCALAR
  // Floats, or pairs of bfloat16, which are transposed like floats and then widened.
  const float* row[kVecLanes];
  for (size_t i = 0; i < kVecLanes; ++i)
    row[i] = reinterpret_cast<const float*>(from + std::min(i, rows - 1) * from_stride);
  constexpr size_t kTogether = sizeof(float) / sizeof(T);
  for (; k + 4 * kTogether <= depth; k += 4 * kTogether) {
    Vec out[4];
    load_transposed_4(ListedRows{row}, k / kTogether, out);
    HWY_UNROLL(4)
    for (size_t c = 0; c < 4; ++c) {
      float* const here = to + (k + c * kTogether) * to_stride;
      if constexpr (kTogether == 1) {
        hn::StoreU(out[c], F32(), here);
      } else {
        const hn::RebindToUnsigned<F32> bits;
        const auto pair = hn::BitCast(bits, out[c]);
        hn::StoreU(hn::BitCast(F32(), hn::ShiftLeft<16>(pair)), F32(), here);
        hn::StoreU(
            hn::BitCast(F32(), hn::And(pair, hn::Set(bits, 0xffff0000))), F32(), here + to_stride);
      }
    }
  }
#endif
  for (; k < depth; ++k) {
    for (size_t i = 0; i < kVecLanes; ++i) {
      to[k * to_stride + i] = to_float(from[std::min(i, rows - 1) * from_stride + k]);
    }
  }
}
template void pack_transposed(const float*, size_t, size_t, size_t, float*, size_t);
template void pack_transposed(const BFloat16*, size_t, size_t, size_t, float*, size_t);

// Calls f(the array of the operand's elements).
template <typename F>
HWY_INLINE void with_elements(GemmOperand operand, F f) {
  operand.halves != nullptr ? f(operand.halves) : f(operand.data);
}

constexpr size_t kRowsTogether = 4;  // tiles of a transposed A that are packed at a time

// Packs a tile of A, `rows` <= kTileRows, depth-major: to[k * rows + i] = element (i, k). May write
// kVecLanes elements past the end of `to`.
HWY_INLINE void pack_tile(GemmOperand a, size_t rows, size_t depth, float* HWY_RESTRICT to) {
  with_elements(a, [&](const auto* elements) HWY_ATTR {
    if (a.transposed) {
      for (size_t k = 0; k < depth; ++k) {
        const auto* from = elements + k * a.stride;
        for (size_t i = 0; i < rows; ++i) to[k * rows + i] = to_float(from[i]);
      }
      return;
    }
    for (size_t i = 0; i < rows; i += kVecLanes) {
      pack_transposed(
          elements + i * a.stride, a.stride, std::min(rows - i, kVecLanes), depth, to + i, rows);
    }
  });
}

// Rows of a that are packed at a time, while the rows after them are prefetched.
HWY_INLINE size_t rows_packed_together(GemmOperand a) {
  return a.transposed ? kRowsTogether * kTileRows : kTileRows;
}

// A transposed operand is depth-major already, so it is read row by row for all tiles at once: a
// row of one tile is less than a cache line, and the next one may be a page away.
void pack_rows(GemmOperand a, size_t rows, size_t depth, float* HWY_RESTRICT to) {
  size_t i = 0;
  if (a.transposed) {
    const size_t full_rows = rows / kTileRows * kTileRows;
    for (size_t k = 0; k < depth; ++k) {
      HWY_ALIGN float widened[kRowsTogether * kTileRows + kVecLanes];
      const float* from = a.data + k * a.stride;
      if (a.halves != nullptr) {
        for_each_vector(full_rows, [&](size_t j, auto access) HWY_ATTR {
          hn::Store(access.load(a.halves + k * a.stride + j), F32(), widened + j);
        });
        from = widened;
      }
      for (i = 0; i < full_rows; i += kTileRows)
        std::memcpy(to + i * depth + k * kTileRows, from + i, kTileRows * sizeof(float));
    }
    i = full_rows;
  }
  for (; i < rows; i += kTileRows)
    pack_tile(a.at(i, 0), std::min(rows - i, kTileRows), depth, to + i * depth);
}

void pack_panel(GemmOperand b, size_t columns, size_t depth, float* HWY_RESTRICT to) {
  const size_t width = round_up(columns, kVecLanes);
  with_elements(b, [&](const auto* elements) HWY_ATTR {
    if (b.transposed) {
      for (size_t j = 0; j < width; j += kVecLanes) {
        pack_transposed(elements + j * b.stride,
                        b.stride,
                        std::min(columns - j, kVecLanes),
                        depth,
                        to + j,
                        width);
      }
      return;
    }
    for (size_t k = 0; k < depth; ++k) {
      const auto* from = elements + k * b.stride;
      if (columns == kPanel) {
        HWY_UNROLL(4)
        for (size_t v = 0; v < kPanel; v += kVecLanes)
          hn::StoreU(FullVector().load(from + v), F32(), to + k * kPanel + v);
      } else {
        for (size_t j = 0; j < width; ++j)
          to[k * width + j] = to_float(from[std::min(j, columns - 1)]);
      }
    }
  });
}

void pack_panels(GemmOperand b, size_t columns, DepthBlocks blocks, float* to) {
  for (int64_t index = 0; index < blocks.count(); ++index) {
    const Range block = blocks.range(index);
    for (size_t j = 0; j < columns; j += kPanel) {
      pack_panel(b.at(block.begin, j),
                 std::min(columns - j, kPanel),
                 block.size(),
                 to + block.begin * round_up(columns, kVecLanes) + j * block.size());
    }
  }
}

// Whether the rows of a are packed, which costs about as much as a few passes of the tiles over
// them. Unpacked rows are as fast only if few columns use them. They are slower for any number of
// columns if their stride makes the rows of a tile compete for the same cache lines. With little
// depth, everything stays in the first-level cache.
HWY_INLINE bool packs_rows(GemmOperand a, size_t columns, size_t depth) {
  if (a.halves != nullptr) return true;
  if (a.transposed) return columns > (a.stride < 256 || depth <= 64 ? 2 : 1) * kPanel;
  return columns > (a.stride % 1024 == 0 ? kPanel : size_t{7 * kMaxPanel});
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// multiply_block() by AVX512-BF16, for operands of bfloat16. Pairs of numbers take the places of
// floats.
void multiply_pairs(const Bf16DotKernels& kernels,
                    size_t rows,
                    size_t columns,
                    size_t depth,
                    GemmOperand a,
                    const Panels& panels,
                    Result c,
                    bool accumulate,
                    uint32_t* packed_a) {
  constexpr size_t kRows = Bf16DotKernels::kTileRows, kColumns = Bf16DotKernels::kTileColumns;
  kernels.pack_rows(a, rows, depth, packed_a);
  for (size_t j = 0; j < columns; j += kColumns) {
    const size_t some = std::min(columns - j, kColumns);
    const float* ready = panels.ready + j * depth;
    if (panels.ready == nullptr) {
      float* const buffer = panels.buffer + (panels.keep ? j * depth : 0);
      kernels.pack_panel(panels.b.at(0, j), some, depth, reinterpret_cast<uint32_t*>(buffer));
      ready = buffer;
    }
    Bf16DotKernels::Tiles tiles = {.tiles = 1,
                                   .rows = kRows,
                                   .vectors = (some + kVecLanes - 1) / kVecLanes,
                                   .pairs = depth / 2,
                                   .a = packed_a,
                                   .b = reinterpret_cast<const uint32_t*>(ready),
                                   .c = c.data + j,
                                   .c_stride = c.stride,
                                   .accumulate = accumulate};
    const bool full = c.padded || some % kVecLanes == 0;
    for (size_t i = 0; i < rows; i += tiles.tiles * tiles.rows) {
      tiles.rows = std::min(rows - i, kRows);
      tiles.tiles = full ? (rows - i) / tiles.rows : 1;
      tiles.a = packed_a + i * (depth / 2);
      tiles.c = c.data + i * c.stride + j;
      if (full) {
        kernels.multiply(tiles);
        continue;
      }
      HWY_ALIGN float edge[kRows * kColumns];
      for (size_t n = 0; n < tiles.rows && accumulate; ++n)
        std::memcpy(edge + n * kColumns, tiles.c + n * c.stride, some * sizeof(float));
      Bf16DotKernels::Tiles inside = tiles;
      inside.c = edge;
      inside.c_stride = kColumns;
      kernels.multiply(inside);
      for (size_t n = 0; n < tiles.rows; ++n)
        std::memcpy(tiles.c + n * c.stride, edge + n * kColumns, some * sizeof(float));
    }
  }
}
#endif

void multiply_block(size_t rows,
                    size_t columns,
                    size_t depth,
                    GemmOperand a,
                    const Panels& panels,
                    Result c,
                    bool accumulate,
                    float* packed_a,
                    bool rows_packed,
                    const BlockFinish* finish) {
  const bool of_halves = a.halves != nullptr && panels.b.halves != nullptr;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  const Bf16DotKernels* const kernels = of_halves && !rows_packed ? bf16_dot_kernels() : nullptr;
  if (kernels != nullptr && depth % 2 == 0) {
    multiply_pairs(*kernels,
                   rows,
                   columns,
                   depth,
                   a,
                   panels,
                   c,
                   accumulate,
                   reinterpret_cast<uint32_t*>(packed_a));
    if (finish != nullptr) finish->run({0, static_cast<int64_t>(columns)});
    return;
  }
#endif
  const bool pack_a = !rows_packed && packs_rows(a, columns, depth);
  const bool in_tiles = pack_a || rows_packed;  // the rows of a, depth-major
  const size_t rows_together = rows_packed_together(a);
  const size_t fetches = fetches_of(depth);  // per tile
  const size_t all_fetches = ceil_div(rows, kTileRows) * fetches;
  // Whether tiles read full panels directly. A tile of less than full height is the only one.
  const bool in_place = !panels.b.transposed && panels.b.halves == nullptr && !panels.keep &&
                        (panels.in_place || rows < kTileRows);
  // Where the panel that begins at column j is packed.
  const auto buffer_of = [&](size_t j) {
    return panels.buffer + (panels.keep ? j * depth : j / kPanel % 2 * kPanel * depth);
  };
  const int64_t finished_together =
      finish == nullptr
          ? 0
          : std::max(kMaxPanel, round_down(kFinishFloats / finish->rows.size(), kMaxPanel));
  size_t finished = 0;  // columns
  bool packed = false;  // the panel, during the one before
  for (size_t j = 0; j < columns; j += kPanel) {
    const size_t panel_columns = std::min(columns - j, kPanel);
    const size_t vectors = ceil_div(panel_columns, kVecLanes);
    const size_t width = vectors * kVecLanes;
    const bool full = c.padded || panel_columns == width;

    Prefetcher next_panel, next_other, reads, writes;
    PanelPacker packer;
    Tiles tiles{};
    tiles.depth = depth;
    tiles.b = panels.ready + j * depth;
    tiles.b_stride = width;
    tiles.c_stride = c.stride;
    tiles.accumulate = accumulate;
    tiles.next_panel = &next_panel;
    tiles.next_other = &next_other;
    if (finish != nullptr) {
      tiles.reads = &reads;
      tiles.writes = &writes;
      const auto of_panel = [&](const GemmOperand& memory) {
        return memory.data == nullptr
                   ? Prefetcher()
                   : Prefetcher(memory.at(finish->rows.begin, finish->column + j),
                                rows,
                                panel_columns,
                                all_fetches);
      };
      reads = of_panel(finish->finish->reads);
      writes = of_panel(finish->finish->writes);
    }
    if (panels.ready == nullptr && in_place && full) {
      tiles.b = panels.b.at(0, j).data;
      tiles.b_stride = panels.b.stride;
    } else if (panels.ready == nullptr) {
      if (!packed) pack_panel(panels.b.at(0, j), panel_columns, depth, buffer_of(j));
      tiles.b = buffer_of(j);
    }
    packed = false;
    const size_t next = j + kPanel,
                 next_columns = std::min(columns - std::min(columns, next), kPanel);
    if (panels.ready == nullptr && !in_place && !panels.b.transposed && next_columns == kPanel) {
      packer = PanelPacker(panels.b.at(0, next), depth, buffer_of(next), all_fetches);
      tiles.packer = &packer;
      packed = true;
    } else if (next_columns > 0) {
      const GemmOperand panel =
          panels.ready == nullptr
              ? panels.b.at(0, next)
              : GemmOperand{panels.ready + next * depth,
                            static_cast<int64_t>(round_up(next_columns, kVecLanes))};
      next_panel = Prefetcher(panel, depth, next_columns, all_fetches);
    }

    const size_t rows_after = rows - std::min(rows, kTileRows);  // those after the first tile
    if (j == 0 && !in_tiles && !a.transposed && rows_after > 0) {
      next_other = Prefetcher(
          a.at(kTileRows, 0), rows_after, depth, ceil_div(rows_after, kTileRows) * fetches);
    } else if (j > 0 && next_columns > 0 && panels.ready == nullptr && panels.keep && !packed) {
      // The kept panels exceed the second-level cache, so stores to them would wait.
      next_other = Prefetcher({buffer_of(next), kPanel}, depth, kPanel, all_fetches);
    }

    {
      const FlushToZero flush(of_halves);
      for (size_t i = 0; i < rows;) {
        // Computes all tiles of full height in one call, but one by one while an operand is being
        // packed.
        const size_t tile_rows = std::min(rows - i, kTileRows);
        const bool one = (j == 0 && pack_a) || !full;
        tiles.tiles = one ? 1 : (rows - i) / tile_rows;
        if (j == 0 && pack_a && i % rows_together == 0) {
          const size_t some = std::min(rows - i, rows_together), after = i + some;
          pack_rows(a.at(i, 0), some, depth, packed_a + i * depth);
          next_other = after == rows ? Prefetcher()
                                     : Prefetcher(a.at(after, 0),
                                                  std::min(rows - after, rows_together),
                                                  depth,
                                                  rows_together / kTileRows * fetches);
        }
        tiles.a = in_tiles ? packed_a + i * depth : a.at(i, 0).data;
        tiles.a_stride = in_tiles ? tile_rows : a.stride;
        tiles.a_step = tile_rows * (in_tiles ? depth : a.transposed ? 1 : a.stride);
        tiles.c = c.data + i * c.stride + j;
        const TileKernel kernel = tile_kernel(in_tiles || a.transposed, vectors, tile_rows);
        if (full) {
          kernel(tiles);
        } else {
          multiply_edge_tile(kernel, tiles, tile_rows, panel_columns);
        }
        i += tiles.tiles * tile_rows;
      }
    }
    if (finish != nullptr &&
        (next_columns == 0 || static_cast<int64_t>(next - finished) >= finished_together)) {
      finish->run({static_cast<int64_t>(finished), static_cast<int64_t>(j + panel_columns)});
      finished = next;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();
