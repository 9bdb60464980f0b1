// How the sums of a LinearProduct (linear.h) become its result. Compiled once per instruction set:
// include it only from a .cc file that Highway's foreach_target.h includes repeatedly.

// Include guard, toggled so that each instruction set includes the body once.
#if defined(LOCKSTEP_RUNTIME_CPU_LINEAR_FINISH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_RUNTIME_CPU_LINEAR_FINISH_INL_H
#undef LOCKSTEP_RUNTIME_CPU_LINEAR_FINISH_INL_H
#else
#define LOCKSTEP_RUNTIME_CPU_LINEAR_FINISH_INL_H
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "runtime/cpu/matmul/epilogue-inl.h"
#include "runtime/cpu/matmul/linear.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Calls body(finish); finish(access, sum, output, at) stores a vector of the result, and of what is
// before the activation, from its sums. `output`: its first column; `at`: its first element.
template <typename T, typename Body>
HWY_INLINE void with_finish(const LinearProduct<T>& op, Body&& body) {
  if (op.saved != nullptr)
    return with_activation(op.saved_activation, [&](auto kind) HWY_ATTR {
      body([&](auto access, Vec sum, size_t, size_t at) HWY_ATTR {
        access.store(activation_backward<kind>(sum, access.load(op.saved + at)), op.y + at);
      });
    });
  with_activation(op.epilogue.activation, [&](auto kind) HWY_ATTR {
    body([&](auto access, Vec sum, size_t output, size_t at) HWY_ATTR {
      const Epilogue<T>& e = op.epilogue;
      if (op.pre != nullptr) access.store(add_bias(e, access, sum, output), op.pre + at);
      access.store(finished<kind>(e, access, sum, output, at), op.y + at);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_RUNTIME_CPU_LINEAR_FINISH_INL_H
