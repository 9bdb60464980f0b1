#pragma once
// Kernels whose shared memory is larger than the 48 KiB that a block has without asking, or whose
// size the launch decides.

#include <cstddef>

#include "runtime/cuda/launch.h"

namespace lockstep::cuda {

// What a block may have on every GPU of compute capability 8.0 and above.
inline constexpr size_t kMaxSharedBytes = 99 * 1024;

// The block's memory, of Launch::shared_bytes, aligned to 16 bytes.
__device__ __forceinline__ std::byte* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ uint4 lockstep_dynamic_shared[];
  return reinterpret_cast<std::byte*>(lockstep_dynamic_shared);
#else
  return fibers::dynamic_shared;
#endif
}

}  // namespace lockstep::cuda
