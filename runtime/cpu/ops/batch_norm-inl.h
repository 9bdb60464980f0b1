// Sums over rows for each channel. Compiled once per instruction set: see simd-inl.h.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_OPS_BATCH_NORM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_OPS_BATCH_NORM_INL_H
#undef LOCKSTEP_RUNTIME_CPU_OPS_BATCH_NORM_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_OPS_BATCH_NORM_INL_H
#endif

#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Rows that are added up in registers, as a tree, before they are added to the sums in memory. A
// chain of eight additions would be serialised, and would load and store the sums for each row.
constexpr int64_t kTreeRows = 8;

HWY_INLINE Vec tree_sum(const Vec (&v)[kTreeRows]) {
  return hn::Add(hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3])),
                 hn::Add(hn::Add(v[4], v[5]), hn::Add(v[6], v[7])));
}
HWY_INLINE Vec tree_product_sum(const Vec (&a)[kTreeRows], const Vec (&b)[kTreeRows]) {
  Vec pairs[4];
  for (size_t k = 0; k < 4; ++k)
    pairs[k] = hn::MulAdd(a[2 * k], b[2 * k], hn::Mul(a[2 * k + 1], b[2 * k + 1]));
  return hn::Add(hn::Add(pairs[0], pairs[1]), hn::Add(pairs[2], pairs[3]));
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_OPS_BATCH_NORM_INL_H
