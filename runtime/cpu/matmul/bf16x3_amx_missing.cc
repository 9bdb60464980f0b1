// Replaces bf16x3_amx.cc in builds for processors that cannot have AMX.
#include "runtime/cpu/matmul/bf16x3.h"

namespace lockstep::cpu {

const Bf16x3Kernels* amx_bf16x3_kernels() { return nullptr; }

}  // namespace lockstep::cpu
