// Packing of the operands of matrix products, defined for each instruction set in gemm_block.cc,
// and the transposition that it uses. Include it only from a .cc file that Highway's
// foreach_target.h includes repeatedly.
//
// Packing copies an operand into the order in which the tile kernel (gemm_tile.cc) reads it. At
// step k of the depth, the kernel loads one row of a panel of B and broadcasts the k-th element of
// each row of a tile of A:
//
//   A(rows, depth) in tiles of `rows` rows          B(depth, columns) in panels of `width` columns
//
//     k=0: a[0,0] a[1,0] ... a[rows-1,0]              k=0: b[0,0] b[0,1] ... b[0,width-1]
//     k=1: a[0,1] a[1,1] ... a[rows-1,1]              k=1: b[1,0] b[1,1] ... b[1,width-1]
//     ...  then the next tile                         ...  then the next panel
//
// So both operands are read sequentially, whatever their strides were: without packing, rows with a
// stride of a page multiple would compete for the same cache lines, and a transposed B could not be
// loaded in vectors. A panel is padded to full vectors; its extra lanes repeat a value, and their
// results are never used, so that no packed value needs a mask. Packing pays if an operand is
// read several times (packs_rows() in gemm_block.cc decides for A).

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_GEMM_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_GEMM_PACK_INL_H
#undef LOCKSTEP_RUNTIME_CPU_GEMM_PACK_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_GEMM_PACK_INL_H
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "runtime/cpu/matmul/gemm.h"
#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// Rows of a matrix: row i begins at rows(i).
template <typename T>
struct StridedRows {
  const T* data;
  size_t stride;
  HWY_INLINE const T* operator()(size_t i) const { return data + i * stride; }
};
struct ListedRows {
  const float* const* list;
  HWY_INLINE const float* operator()(size_t i) const { return list[i]; }
};

// Loads four elements.
template <class D>
HWY_INLINE hn::Vec<D> load_four(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load_four(D d, const BFloat16* from) {
  const hn::Rebind<uint16_t, D> stored;
  const hn::RebindToUnsigned<D> bits;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(stored, &from->bits))));
}

// Loads four elements of each of several rows: block b of the result is from row first + 4 b.
template <class D, class Rows>
HWY_INLINE hn::Vec<D> load_blocks(D d, Rows rows, size_t first, size_t column) {
  constexpr size_t kLanes = hn::MaxLanes(D());
  if constexpr (kLanes == 4) {
    return load_four(d, rows(first) + column);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d,
                       load_blocks(half, rows, first + kLanes / 2, column),
                       load_blocks(half, rows, first, column));
  }
}

// out[c] = elements column + c of the kVecLanes rows, one row per lane.
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
// full vectors: lanes from `rows` on repeat the last row and overwrite what follows, up to
// kVecLanes elements from the beginning of the last k. T: float or BFloat16.
template <typename T>
void pack_transposed(
    const T* from, size_t from_stride, size_t rows, size_t depth, float* to, size_t to_stride);

// Packs consecutive tiles of A: element (i, k) of a tile of `rows` <= kTileRows rows is at to[k *
// rows + i]. May write kVecLanes elements past the end of `to`.
void pack_rows(GemmOperand a, size_t rows, size_t depth, float* to);

// Packs the columns [0, columns) of B, columns <= kPanel, as one panel: row k is at to + k * width,
// width = columns rounded up to full vectors. Lanes past `columns` repeat a value of the row.
void pack_panel(GemmOperand b, size_t columns, size_t depth, float* to);

// Packs B(depth, columns): its depth blocks one after the other, and within a block its panels.
void pack_panels(GemmOperand b, size_t columns, DepthBlocks blocks, float* to);

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_GEMM_PACK_INL_H
