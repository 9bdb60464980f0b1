// Copies of numbers as floats. Compiled once per instruction set: include it only from a .cc file
// that Highway's foreach_target.h includes repeatedly.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_WIDEN_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_WIDEN_INL_H
#undef LOCKSTEP_RUNTIME_CPU_WIDEN_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_WIDEN_INL_H
#endif

#include <cstddef>
#include <cstring>

#include "hwy/highway.h"
#include "runtime/cpu/matmul/gemm_pack-inl.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Copies n numbers.
HWY_INLINE void copy_as_floats(const float* from, size_t n, float* to) {
  std::memcpy(to, from, n * sizeof(float));
}
HWY_INLINE void copy_as_floats(const BFloat16* from, size_t n, float* to) {
  size_t i = 0;
  for (; i + kVecLanes <= n; i += kVecLanes) hn::StoreU(FullVector().load(from + i), F32(), to + i);
#if HWY_TARGET != HWY_SCALAR
  // Groups of channels often have four.
  const hn::CappedTag<float, 4> four;
  for (; i + 4 <= n; i += 4) hn::StoreU(load_four(four, from + i), four, to + i);
#endif
  for (; i < n; ++i) to[i] = to_float(from[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_WIDEN_INL_H
