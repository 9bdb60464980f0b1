// The transforms of Winograd's convolutions (conv2d_winograd.h), compiled once per instruction set
// (include it only from a .cc file that Highway's foreach_target.h includes repeatedly).

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_CONV2D_WINOGRAD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_CONV2D_WINOGRAD_INL_H
#undef LOCKSTEP_RUNTIME_CPU_CONV2D_WINOGRAD_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_CONV2D_WINOGRAD_INL_H
#endif

#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Each applies one of the matrices to a column of vectors at `from`, `step` apart.

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

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_CONV2D_WINOGRAD_INL_H
