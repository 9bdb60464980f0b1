#pragma once
// Arithmetic as that of the units for bfloat16.

#include "hwy/detect_compiler_arch.h"

#if HWY_ARCH_X86
#include <xmmintrin.h>
#endif

namespace lockstep::cpu {

// While it lives, this thread takes numbers below 2^-126 for zero, as TDPBF16PS and VDPBF16PS do.
// Nothing happens on processors other than x86-64.
class FlushToZero {
 public:
  // active: otherwise nothing changes.
  explicit FlushToZero([[maybe_unused]] bool active = true) {
#if HWY_ARCH_X86
    constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
    before_ = _mm_getcsr();
    if (active) _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero);
#endif
  }
  ~FlushToZero() {
#if HWY_ARCH_X86
    if (_mm_getcsr() != before_) _mm_setcsr(before_);
#endif
  }
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
  [[maybe_unused]] unsigned before_ = 0;
};

}  // namespace lockstep::cpu
