// Packing the operands of matrix products, compiled once per instruction set (include it only from
// a .cc file that Highway's foreach_target.h includes repeatedly).

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_GEMM_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_GEMM_PACK_INL_H
#undef LOCKSTEP_RUNTIME_CPU_GEMM_PACK_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_GEMM_PACK_INL_H
#endif

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "hwy/highway.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/gemm_blocking.h"
#include "runtime/cpu/gemm_tile-inl.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

static_assert(kTileRows <= kVecLanes || kVecLanes == 1);  // pack_tile stores one vector a step

#if HWY_TARGET != HWY_SCALAR
// Rows of a matrix: row i begins at rows(i).
struct StridedRows {
  const float* data;
  size_t stride;
  HWY_INLINE const float* operator()(size_t i) const { return data + i * stride; }
};
struct ListedRows {
  const float* const* list;
  HWY_INLINE const float* operator()(size_t i) const { return list[i]; }
};

// Four elements of each of several rows: block b of the result is from row first + 4 b.
template <class D, class Rows>
HWY_INLINE hn::Vec<D> load_blocks(D d, Rows rows, size_t first, size_t column) {
  constexpr size_t kLanes = hn::MaxLanes(D());
  if constexpr (kLanes == 4) {
    return hn::LoadU(d, rows(first) + column);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d,
                       load_blocks(half, rows, first + kLanes / 2, column),
                       load_blocks(half, rows, first, column));
  }
}

// out[c] = elements column + c of the kVecLanes rows, one row a lane.
template <class Rows>
HWY_INLINE void load_transposed_4(Rows rows, size_t column, Vec* HWY_RESTRICT out) {
  const F32 d;
  const hn::RepartitionToWide<hn::RebindToUnsigned<F32>> pairs;
  const Vec r0 = load_blocks(d, rows, 0, column);
  const Vec r1 = load_blocks(d, rows, 1, column);
  const Vec r2 = load_blocks(d, rows, 2, column);
  const Vec r3 = load_blocks(d, rows, 3, column);
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
    load_transposed_4(ListedRows{row}, k, out);
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
HWY_INLINE void pack_tile(GemmOperand a, size_t rows, size_t depth, float* HWY_RESTRICT to) {
  if (a.transposed) {
    for (size_t k = 0; k < depth; ++k) {
      const float* from = a.data + k * a.stride;
      for (size_t i = 0; i < rows; ++i) to[k * rows + i] = from[i];
    }
    return;
  }
  for (size_t i = 0; i < rows; i += kVecLanes) {
    pack_transposed(
        a.data + i * a.stride, a.stride, std::min(rows - i, kVecLanes), depth, to + i, rows);
  }
}

// Packs tiles of A, one after the other. What lies depth-major already is read row by row for all
// of them: a row of one tile is less than a cache line, and the next one may be a page away.
HWY_INLINE void pack_rows(GemmOperand a, size_t rows, size_t depth, float* HWY_RESTRICT to) {
  size_t i = 0;
  if (a.transposed) {
    const size_t whole = rows / kTileRows * kTileRows;
    for (size_t k = 0; k < depth; ++k) {
      const float* const from = a.data + k * a.stride;
      for (i = 0; i < whole; i += kTileRows)
        std::memcpy(to + i * depth + k * kTileRows, from + i, kTileRows * sizeof(float));
    }
    i = whole;
  }
  for (; i < rows; i += kTileRows)
    pack_tile(a.at(i, 0), std::min(rows - i, kTileRows), depth, to + i * depth);
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

// Packs B(depth, columns): its depth blocks follow each other, and within a block its panels.
HWY_INLINE void pack_panels(GemmOperand b, size_t columns, DepthBlocks blocks, float* to) {
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

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_GEMM_PACK_INL_H
