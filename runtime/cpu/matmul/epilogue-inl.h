// The arithmetic of an Epilogue (epilogue.h). Compiled once per instruction set: include it only
// from a .cc file that Highway's foreach_target.h includes repeatedly.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_EPILOGUE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_EPILOGUE_INL_H
#undef LOCKSTEP_RUNTIME_CPU_EPILOGUE_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_EPILOGUE_INL_H
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "runtime/cpu/matmul/epilogue.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

template <typename T, typename Access>
HWY_INLINE Vec add_bias(const Epilogue<T>& e, Access access, Vec sum, size_t column) {
  return e.bias == nullptr ? sum : hn::Add(sum, access.load(e.bias + column));
}

// Applies all of the epilogue but the activation to sums that share their columns, from `column`
// on: y[i] is the vector that begins at element at[i] of the result.
template <typename T, size_t kCount, typename Access>
HWY_INLINE void finish_sums(const Epilogue<T>& e,
                            Access access,
                            Vec (&y)[kCount],
                            size_t column,
                            const int64_t (&at)[kCount]) {
  if (e.bias != nullptr) {
    const Vec bias = access.load(e.bias + column);
    HWY_UNROLL(16)
    for (size_t i = 0; i < kCount; ++i) y[i] = hn::Add(y[i], bias);
  }
  if (e.mean != nullptr) {
    const Vec mean = access.load(e.mean + column), scale = access.load(e.scale + column);
    const Vec shift = access.load(e.shift + column);
    HWY_UNROLL(16)
    for (size_t i = 0; i < kCount; ++i) y[i] = hn::MulAdd(hn::Sub(y[i], mean), scale, shift);
  }
  if (e.residual != nullptr) {
    HWY_UNROLL(16)
    for (size_t i = 0; i < kCount; ++i) y[i] = hn::Add(y[i], access.load(e.residual + at[i]));
  }
}

// The result of one vector of sums. kKind: the epilogue's activation.
template <Activation kKind, typename T, typename Access>
HWY_INLINE Vec finished(const Epilogue<T>& e, Access access, Vec sum, size_t column, int64_t at) {
  Vec y[1] = {sum};
  const int64_t begin[1] = {at};
  finish_sums(e, access, y, column, begin);
  return activate<kKind>(y[0]);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_EPILOGUE_INL_H
