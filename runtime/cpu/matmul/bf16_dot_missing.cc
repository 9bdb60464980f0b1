// For processors other than x86-64.
#include "runtime/cpu/matmul/bf16_dot.h"

namespace lockstep::cpu {

const Bf16DotKernels* bf16_dot_kernels() { return nullptr; }

ScopedBf16Dot::ScopedBf16Dot() : before_(nullptr) {}
ScopedBf16Dot::~ScopedBf16Dot() = default;
bool ScopedBf16Dot::available() { return false; }

}  // namespace lockstep::cpu
