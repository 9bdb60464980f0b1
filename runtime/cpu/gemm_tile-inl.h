// The tile kernel of matrix products, compiled once per instruction set (include it only from a .cc
// file that Highway's foreach_target.h includes repeatedly).
//
// A tile of the result, kTileRows x kPanel elements, lives in registers while the kernel walks over
// the depth: each step loads one row of a panel of B (two vectors) and multiplies it by one element
// of each row of A, broadcast.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_GEMM_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_GEMM_TILE_INL_H
#undef LOCKSTEP_RUNTIME_CPU_GEMM_TILE_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_GEMM_TILE_INL_H
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

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
static_assert(kRowUnit % kTileRows == 0 && kMaxPanel % kPanel == 0);

// Touches memory that is needed next, some cache lines at a time between the tiles that compute on
// other memory: so nothing waits for main memory.
class Prefetcher {
 public:
  Prefetcher() = default;
  // The part (rows, columns) of an operand, spread over so many calls of run(). None of them is 0.
  HWY_INLINE Prefetcher(GemmOperand operand, size_t rows, size_t columns, size_t calls)
      : row_(operand.data),
        stride_(operand.stride),
        rows_left_(operand.transposed ? columns : rows),
        last_((operand.transposed ? rows : columns) - 1) {
    // A row that does not begin with a line may end one line later.
    const bool aligned =
        reinterpret_cast<uintptr_t>(row_) % (kLine * sizeof(float)) == 0 && stride_ % kLine == 0;
    row_lines_ = last_ / kLine + (aligned ? 1 : 2);
    lines_ = ceil_div(rows_left_ * row_lines_, calls);
  }

  HWY_INLINE void run() {
    for (size_t left = lines_; left > 0 && rows_left_ > 0;) {
      const size_t end = std::min(row_lines_, line_ + left);
      left -= end - line_;
      for (; line_ < end; ++line_) __builtin_prefetch(row_ + std::min(line_ * kLine, last_), 0, 2);
      if (line_ < row_lines_) return;
      line_ = 0;
      row_ += stride_;
      --rows_left_;
    }
  }

 private:
  static constexpr size_t kLine = 16;  // floats
  const float* row_ = nullptr;
  size_t stride_ = 0, rows_left_ = 0;
  size_t last_ = 0;  // index of a row's last element
  size_t row_lines_ = 0, line_ = 0;
  size_t lines_ = 0;  // in a call
};

// Tiles one below the other: c(tiles * rows, vectors * kVecLanes) = (accumulate ? c : 0) + a b.
struct Tiles {
  size_t tiles;
  size_t depth;
  const float* a;  // element (i, k) is a[i * a_stride + k], or a[k * a_stride + i] if depth-major
  size_t a_stride;
  size_t a_step;   // from one tile to the next
  const float* b;  // row k is at b + k * b_stride
  size_t b_stride;
  float* pack_b;  // where rows of b are copied to, one after the other, by kernels that do that
  float* c;
  size_t c_stride;
  bool accumulate;
  Prefetcher *next_panel, *next_rows;  // each run once a tile
};

template <size_t kRows, size_t kVectors, bool kDepthMajor, bool kPackB>
HWY_INLINE void multiply_tile(const Tiles& t, const float* HWY_RESTRICT a, float* c) {
  const F32 d;
  const float* HWY_RESTRICT b = t.b;
  float* HWY_RESTRICT packed = t.pack_b;
  const size_t a_stride = t.a_stride, b_stride = t.b_stride, c_stride = t.c_stride;
  Vec sum[kRows][kVectors];
  const float* from = c;
  HWY_UNROLL(16)
  for (size_t i = 0; i < kRows; ++i, from += c_stride) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) {
      sum[i][v] = t.accumulate ? hn::LoadU(d, from + v * kVecLanes) : hn::Zero(d);
    }
  }
  // Rows of a that are not depth-major are reached from every third row: a pointer for each of them
  // would not fit into the registers.
  static_assert(kRows <= 12);
  const float *row_0 = a, *row_3 = a + 3 * a_stride, *row_6 = a + 6 * a_stride,
              *row_9 = a + 9 * a_stride;
  const size_t depth = t.depth;
  for (size_t k = 0; k < depth; ++k) {
    Vec row[kVectors];
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * kVecLanes);
    b += b_stride;
    if (kPackB) {
      HWY_UNROLL(4)
      for (size_t v = 0; v < kVectors; ++v) hn::StoreU(row[v], d, packed + v * kVecLanes);
      packed += kVectors * kVecLanes;
    }
    HWY_UNROLL(16)
    for (size_t i = 0; i < kRows; ++i) {
      const float* const row_i = i < 3 ? row_0 : i < 6 ? row_3 : i < 9 ? row_6 : row_9;
      const Vec factor = hn::Set(d, kDepthMajor ? a[i] : row_i[i % 3 * a_stride]);
      HWY_UNROLL(4)
      for (size_t v = 0; v < kVectors; ++v) sum[i][v] = hn::MulAdd(factor, row[v], sum[i][v]);
    }
    if (kDepthMajor) {
      a += a_stride;
    } else {
      ++row_0, ++row_3, ++row_6, ++row_9;
      // Hides from the compiler what they have in common; it would make twelve pointers of them.
      asm("" : "+r"(row_0), "+r"(row_3), "+r"(row_6), "+r"(row_9));
    }
  }
  HWY_UNROLL(16)
  for (size_t i = 0; i < kRows; ++i, c += c_stride) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sum[i][v], d, c + v * kVecLanes);
  }
}

// The loop over tiles is in here because leaving a function that uses wide registers costs as much
// as three steps of the depth (vzeroupper waits for all that is under way). kPackB: copies the
// panel of b on the way, in the shadow of the arithmetic.
template <size_t kRows, size_t kVectors, bool kDepthMajor, bool kPackB>
HWY_NOINLINE void multiply_tiles(const Tiles& t) {
  const float* a = t.a;
  float* c = t.c;
  for (size_t n = 0; n < t.tiles; ++n) {
    t.next_panel->run();
    t.next_rows->run();
    if (n + 1 < t.tiles) {
      for (size_t i = kRows; i < 2 * kRows; ++i) {
        for (size_t v = 0; v < kVectors; ++v) {
          __builtin_prefetch(c + i * t.c_stride + v * kVecLanes, 1, 3);
        }
      }
    }
    multiply_tile<kRows, kVectors, kDepthMajor, kPackB>(t, a, c);
    a += t.a_step;
    c += kRows * t.c_stride;
  }
}

using TileKernel = void (*)(const Tiles&);

template <bool kDepthMajor, bool kPackB, size_t kVectors, size_t... kRows>
constexpr std::array<TileKernel, sizeof...(kRows)> tile_kernels(std::index_sequence<kRows...>) {
  return {multiply_tiles<kRows + 1, kVectors, kDepthMajor, kPackB>...};
}

// The kernel for tiles of `rows` rows and `vectors` vectors.
HWY_INLINE TileKernel tile_kernel(bool depth_major, bool pack_b, size_t vectors, size_t rows) {
  constexpr auto kAll = std::make_index_sequence<kTileRows>();
  static constexpr std::array<TileKernel, kTileRows> kKernels[2][2][kTileVectors] = {
      {{tile_kernels<false, false, 1>(kAll), tile_kernels<false, false, 2>(kAll)},
       {tile_kernels<false, true, 1>(kAll), tile_kernels<false, true, 2>(kAll)}},
      {{tile_kernels<true, false, 1>(kAll), tile_kernels<true, false, 2>(kAll)},
       {tile_kernels<true, true, 1>(kAll), tile_kernels<true, true, 2>(kAll)}}};
  return kKernels[depth_major][pack_b][vectors - 1][rows - 1];
}

// Runs one tile whose last columns are missing in c: computes in a buffer and copies what exists.
inline HWY_NOINLINE void multiply_edge_tile(TileKernel kernel,
                                            Tiles tile,
                                            size_t rows,
                                            size_t columns) {
  alignas(64) float buffer[kTileRows * kPanel] = {};
  float* const c = tile.c;
  const size_t c_stride = tile.c_stride;
  if (tile.accumulate) {
    for (size_t i = 0; i < rows; ++i) {
      std::memcpy(buffer + i * kPanel, c + i * c_stride, columns * sizeof(float));
    }
  }
  tile.c = buffer;
  tile.c_stride = kPanel;
  kernel(tile);
  for (size_t i = 0; i < rows; ++i) {
    std::memcpy(c + i * c_stride, buffer + i * kPanel, columns * sizeof(float));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_GEMM_TILE_INL_H
