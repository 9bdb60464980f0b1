#include <algorithm>
#include <cstddef>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/gemm_pack.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/gemm_pack-inl.h"
#include "runtime/cpu/gemm_tile-inl.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

static_assert(kTileRows <= kVecLanes || kVecLanes == 1);  // pack_tile stores one vector a step

void pack_transposed(
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

// What lies depth-major already is read row by row for all tiles: a row of one tile is less than a
// cache line, and the next one may be a page away.
void pack_rows(GemmOperand a, size_t rows, size_t depth, float* HWY_RESTRICT to) {
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

void pack_panel(GemmOperand b, size_t columns, size_t depth, float* HWY_RESTRICT to) {
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

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();
