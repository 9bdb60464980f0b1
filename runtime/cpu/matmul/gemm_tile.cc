#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/matmul/gemm_tile.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/matmul/gemm_tile-inl.h"
#include "runtime/cpu/simd-inl.h"

// A tile of the result, kTileRows x kPanel elements, stays in registers while the kernel goes over
// the depth. Each step loads one row of a panel of B (two vectors) and multiplies it by one element
// of each row of A, broadcast. There is a kernel for every height, width and layout of the
// operands; they are compiled only in this file.

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

template <size_t kRows, size_t kVectors, bool kDepthMajor>
HWY_INLINE void multiply_tile(const Tiles& t,
                              const float* HWY_RESTRICT a,
                              float* c,
                              Prefetcher next_results) {
  const F32 d;
  const float* HWY_RESTRICT b = t.b;
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
  // Rows of a that are not depth-major are addressed relative to every third row, because a pointer
  // for each row would not fit into the registers.
  static_assert(kRows <= 12);
  const float *row_0 = a, *row_3 = a + 3 * a_stride, *row_6 = a + 6 * a_stride,
              *row_9 = a + 9 * a_stride;
  const size_t depth = t.depth;
  for (size_t k = 0; k < depth;) {
    if (t.packer != nullptr) t.packer->run();
    t.next_panel->run();
    t.next_other->run();
    if (HWY_UNLIKELY(t.reads != nullptr)) {
      t.reads->run();
      t.writes->run</*kWrite=*/true>();
    }
    next_results.run</*kWrite=*/true>();
    for (const size_t end = std::min(depth, k + kFetchSteps); k < end; ++k) {
      Vec row[kVectors];
      HWY_UNROLL(4)
      for (size_t v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * kVecLanes);
      b += b_stride;
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
        // Hides the common origin of the pointers from the compiler, which would turn them into
        // twelve.
        asm("" : "+r"(row_0), "+r"(row_3), "+r"(row_6), "+r"(row_9));
      }
    }
  }
  HWY_UNROLL(16)
  for (size_t i = 0; i < kRows; ++i, c += c_stride) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sum[i][v], d, c + v * kVecLanes);
  }
}

// The loop over tiles is inside because leaving a function that uses wide registers costs as much
// as three steps of the depth (vzeroupper waits for everything in flight).
template <size_t kRows, size_t kVectors, bool kDepthMajor>
HWY_NOINLINE void multiply_tiles(const Tiles& t) {
  const float* a = t.a;
  float* c = t.c;
  const Prefetcher results(
      {c, static_cast<int64_t>(t.c_stride)}, kRows, kVectors * kVecLanes, fetches_of(t.depth));
  for (size_t n = 0; n < t.tiles; ++n) {
    float* const next = c + kRows * t.c_stride;
    multiply_tile<kRows, kVectors, kDepthMajor>(
        t, a, c, n + 1 < t.tiles ? results.at(next) : Prefetcher());
    a += t.a_step;
    c = next;
  }
}

template <bool kDepthMajor, size_t kVectors, size_t... kRows>
constexpr std::array<TileKernel, sizeof...(kRows)> tile_kernels(std::index_sequence<kRows...>) {
  return {multiply_tiles<kRows + 1, kVectors, kDepthMajor>...};
}

TileKernel tile_kernel(bool depth_major, size_t vectors, size_t rows) {
  constexpr auto kAll = std::make_index_sequence<kTileRows>();
  static constexpr std::array<TileKernel, kTileRows> kKernels[2][kTileVectors] = {
      {tile_kernels<false, 1>(kAll), tile_kernels<false, 2>(kAll)},
      {tile_kernels<true, 1>(kAll), tile_kernels<true, 2>(kAll)}};
  return kKernels[depth_major][vectors - 1][rows - 1];
}

void multiply_edge_tile(TileKernel kernel, Tiles tile, size_t rows, size_t columns) {
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
