// Replaces bf16x3_amx.cc in builds for processors that cannot have AMX.
#include "runtime/cpu/matmul/bf16x3.h"

namespace lockstep::cpu {

template <>
const TileKernels<float>* amx_tile_kernels() {
  return nullptr;
}
template <>
const TileKernels<BFloat16>* amx_tile_kernels() {
  return nullptr;
}

}  // namespace lockstep::cpu
