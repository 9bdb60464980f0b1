// The transforms of Winograd's convolutions (conv2d_winograd.h). Compiled once per instruction set:
// include it only from a .cc file that Highway's foreach_target.h includes repeatedly.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_CONV2D_WINOGRAD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_CONV2D_WINOGRAD_INL_H
#undef LOCKSTEP_RUNTIME_CPU_CONV2D_WINOGRAD_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_CONV2D_WINOGRAD_INL_H
#endif

#include <algorithm>
#include <cstddef>

#include "hwy/highway.h"
#include "runtime/cpu/conv2d/conv2d_pack-inl.h"
#include "runtime/cpu/conv2d/conv2d_winograd.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Each function below applies one of the matrices to a column of vectors at `from`, `step` apart.

// B^T: four pixels to four entries.
HWY_INLINE void transform_pixels(const Vec* from, size_t step, Vec* to, size_t to_step) {
  const Vec d0 = from[0], d1 = from[step], d2 = from[2 * step], d3 = from[3 * step];
  to[0] = hn::Sub(d0, d2);
  to[to_step] = hn::Add(d1, d2);
  to[2 * to_step] = hn::Sub(d2, d1);
  to[3 * to_step] = hn::Sub(d1, d3);
}

// G: three weights to four entries.
HWY_INLINE void transform_weights(const Vec* from, size_t step, Vec* to, size_t to_step) {
  const Vec half = set(0.5f);
  const Vec g0 = from[0], g1 = from[step], g2 = from[2 * step];
  const Vec outer = hn::Add(g0, g2);
  to[0] = g0;
  to[to_step] = hn::Mul(half, hn::Add(outer, g1));
  to[2 * to_step] = hn::Mul(half, hn::Sub(outer, g1));
  to[3 * to_step] = g2;
}

// A^T: four entries to two results.
HWY_INLINE void transform_sums(const Vec* from, size_t step, Vec* to, size_t to_step) {
  const Vec m0 = from[0], m1 = from[step], m2 = from[2 * step], m3 = from[3 * step];
  to[0] = hn::Add(m0, hn::Add(m1, m2));
  to[to_step] = hn::Sub(hn::Sub(m1, m2), m3);
}

// B^T d B: 4x4 pixels, row by row, to 16 entries.
HWY_INLINE void transform_pixel_tile(const Vec* d, Vec* to) {
  Vec half[16];
  HWY_UNROLL(4)
  for (size_t j = 0; j < 4; ++j) transform_pixels(d + j, 4, half + j, 4);
  HWY_UNROLL(4)
  for (size_t i = 0; i < 4; ++i) transform_pixels(half + 4 * i, 1, to + 4 * i, 1);
}

// G g G^T: 3x3 weights to 16 entries.
HWY_INLINE void transform_weight_tile(const Vec* g, Vec* to) {
  Vec half[12];
  HWY_UNROLL(4)
  for (size_t j = 0; j < 3; ++j) transform_weights(g + j, 3, half + j, 3);
  HWY_UNROLL(4)
  for (size_t i = 0; i < 4; ++i) transform_weights(half + 3 * i, 1, to + 4 * i, 1);
}

// A^T m A: 16 entries to 2x2 results.
HWY_INLINE void transform_sum_tile(const Vec* m, Vec* to) {
  Vec half[8];
  HWY_UNROLL(4)
  for (size_t j = 0; j < 4; ++j) transform_sums(m + j, 4, half + j, 4);
  HWY_UNROLL(2)
  for (size_t i = 0; i < 2; ++i) transform_sums(half + 4 * i, 1, to + 2 * i, 1);
}

// A: two gradients of results to four entries.
HWY_INLINE void transform_gradients(const Vec* from, size_t step, Vec* to, size_t to_step) {
  const Vec d0 = from[0], d1 = from[step];
  to[0] = d0;
  to[to_step] = hn::Add(d0, d1);
  to[2 * to_step] = hn::Sub(d0, d1);
  to[3 * to_step] = hn::Neg(d1);
}

// G^T: four entries to the gradients of three weights.
HWY_INLINE void transform_products(const Vec* from, size_t step, Vec* to, size_t to_step) {
  const Vec half = set(0.5f);
  const Vec m0 = from[0], m1 = from[step], m2 = from[2 * step], m3 = from[3 * step];
  const Vec even = hn::Mul(half, hn::Add(m1, m2));
  to[0] = hn::Add(m0, even);
  to[to_step] = hn::Mul(half, hn::Sub(m1, m2));
  to[2 * to_step] = hn::Add(even, m3);
}

// A d A^T: 2x2 gradients of results to 16 entries.
HWY_INLINE void transform_gradient_tile(const Vec* d, Vec* to) {
  Vec half[8];
  HWY_UNROLL(2)
  for (size_t j = 0; j < 2; ++j) transform_gradients(d + j, 2, half + j, 2);
  HWY_UNROLL(4)
  for (size_t i = 0; i < 4; ++i) transform_gradients(half + 2 * i, 1, to + 4 * i, 1);
}

// G^T m G: 16 entries to the gradients of 3x3 weights.
HWY_INLINE void transform_product_tile(const Vec* m, Vec* to) {
  Vec half[12];
  HWY_UNROLL(4)
  for (size_t j = 0; j < 4; ++j) transform_products(m + j, 4, half + j, 4);
  HWY_UNROLL(3)
  for (size_t i = 0; i < 3; ++i) transform_products(half + 4 * i, 1, to + 3 * i, 1);
}

// Position of a tile: its image, and its first pixel (i, j) in the result.
struct TilePosition {
  HWY_INLINE TilePosition(const WinogradTiles& tiles, int64_t index)
      : image(index / tiles.across / tiles.down),
        i(index / tiles.across % tiles.down * 2),
        j(index % tiles.across * 2) {}
  int64_t image, i, j;
};

// Transforms some channels of the pixels of some tiles: to[entry][tile][channel].
template <typename T>
HWY_NOINLINE void transform_block_pixels(const Gather<T>& g,
                                         Range range,
                                         Range channels,
                                         float* to,
                                         size_t entry_stride,
                                         size_t tile_stride) {
  const WinogradTiles tiles(g);
  const auto origin = [](const GatherAxis& axis) {
    return std::min(axis.source_first, axis.source_first + 2 * axis.source_tap_step);
  };
  const int64_t h0 = origin(g.h), w0 = origin(g.w);
  for (int64_t index = range.begin; index < range.end; ++index, to += tile_stride) {
    const TilePosition position(tiles, index);
    // For padding, step 0 reads the same zeros repeatedly.
    const T* pixel[16];
    int64_t step[16];
    const T* const image = g.a + position.image * g.a_strides.image + channels.begin;
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t j = 0; j < 4; ++j) {
        const int64_t h = h0 + position.i + i, w = w0 + position.j + j;
        const bool inside = h >= 0 && h < g.h.source_extent && w >= 0 && w < g.w.source_extent;
        pixel[4 * i + j] = inside ? image + h * g.a_strides.row + w * g.a_strides.pixel
                                  : reinterpret_cast<const T*>(kPadding);
        step[4 * i + j] = inside ? 1 : 0;
      }
    }
    for_each_vector(channels.size(), [&](size_t c, auto access) HWY_ATTR {
      Vec pixels[16], entries[kEntries];
      HWY_UNROLL(16)
      for (size_t p = 0; p < 16; ++p) pixels[p] = access.load(pixel[p] + c * step[p]);
      transform_pixel_tile(pixels, entries);
      HWY_UNROLL(16)
      for (size_t e = 0; e < kEntries; ++e) {
        hn::StoreU(entries[e], F32(), to + e * entry_stride + c);
      }
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_CONV2D_WINOGRAD_INL_H
