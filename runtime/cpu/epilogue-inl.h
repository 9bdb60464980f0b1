// The arithmetic of an Epilogue (epilogue.h), compiled once per instruction set (include it only
// from a .cc file that Highway's foreach_target.h includes repeatedly).

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_EPILOGUE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_EPILOGUE_INL_H
#undef LOCKSTEP_RUNTIME_CPU_EPILOGUE_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_EPILOGUE_INL_H
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "runtime/cpu/epilogue.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

template <typename Access>
HWY_INLINE Vec add_bias(const Epilogue& e, Access access, Vec sum, size_t column) {
  return e.bias == nullptr ? sum : hn::Add(sum, access.load(e.bias + column));
}

// The result of a sum that is element `at` of it and lies in `column`, or of the vector that begins
// there. kKind: the epilogue's activation.
template <Activation kKind, typename Access>
HWY_INLINE Vec finished(const Epilogue& e, Access access, Vec sum, size_t column, size_t at) {
  Vec y = add_bias(e, access, sum, column);
  if (e.mean != nullptr) {
    const Vec centred = hn::Sub(y, access.load(e.mean + column));
    y = hn::MulAdd(centred, access.load(e.scale + column), access.load(e.shift + column));
  }
  if (e.residual != nullptr) y = hn::Add(y, access.load(e.residual + at));
  return activate<kKind>(y);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_EPILOGUE_INL_H
