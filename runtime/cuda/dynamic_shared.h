#pragma once
// Kernels whose shared memory is larger than the 48 KiB that a block has without asking, or whose
// size the launch decides.

#include <cstddef>

#include "runtime/cuda/launch.h"

namespace lockstep::cuda {

// What a block may have on every GPU of compute capability 8.0 and above.
inline constexpr size_t kMaxSharedBytes = 99 * 1024;

// The block's memory of the size that the launch gives, aligned to 16 bytes.
__device__ __forceinline__ std::byte* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ uint4 lockstep_dynamic_shared[];
  return reinterpret_cast<std::byte*>(lockstep_dynamic_shared);
#else
  return fibers::dynamic_shared;
#endif
}

// launch(), with `shared_bytes` of dynamic_shared().
template <typename... Parameters, typename... Arguments>
void launch_with_shared(const Launch& config,
                        size_t shared_bytes,
                        void (*kernel)(Parameters...),
                        Arguments... arguments) {
#ifdef __CUDACC__
  constexpr size_t kWithoutAsking = 48 * 1024;
  if (shared_bytes > kWithoutAsking)
    check_launch(
        cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
        config.where);
  kernel<<<config.grid, config.block, shared_bytes, config.stream>>>(
      static_cast<Parameters>(arguments)...);
  check_launch(cudaGetLastError(), config.where);
#else
  const fibers::Launched what = {reinterpret_cast<const void*>(kernel), config.where};
  (fibers::check_argument(what, static_cast<Parameters>(arguments)), ...);
  fibers::enqueue(config.stream, [=] {
    fibers::dynamic_shared_bytes = shared_bytes;
    const auto thread = [&]() LOCKSTEP_HANDS_ARGUMENTS {
      kernel(static_cast<Parameters>(arguments)...);
    };
    fibers::run_grid(what, config.grid, config.block, thread);
  });
  if (fibers::after_launch) fibers::after_launch(config.where);
#endif
}

}  // namespace lockstep::cuda
