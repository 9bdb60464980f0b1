#pragma once
// How kernels are launched: launch({grid, block, stream}, kernel, arguments...). nvcc compiles
// kernel files for the GPU. In the tests, the host's compiler compiles them: a force-included
// header, tests/fibers/cuda_on_host.h, provides the same names and runs the threads of a block as
// fibers.

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

#include <cstddef>
#include <cstdint>
#include <source_location>

#include "runtime/cuda/check.h"
#include "runtime/cuda/plan/tiles.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

struct Launch {
  dim3 grid;
  dim3 block;
  Stream stream;
  size_t shared_bytes = 0;  // of dynamic_shared.h
  std::source_location where = std::source_location::current();
};

// Max blocks in a grid's second dimension. Tests of the kernels make it small.
inline int64_t max_blocks_down() {
#ifdef __CUDACC__
  return kMaxBlocksDown;
#else
  return fibers::max_blocks_down;
#endif
}

#ifdef __CUDACC__

template <typename... Parameters, typename... Arguments>
void launch(const Launch& config, void (*kernel)(Parameters...), Arguments... arguments) {
  constexpr size_t kWithoutAsking = 48 * 1024;
  if (config.shared_bytes > kWithoutAsking)
    check_launch(cudaFuncSetAttribute(kernel,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(config.shared_bytes)),
                 config.where);
  kernel<<<config.grid, config.block, config.shared_bytes, config.stream>>>(
      static_cast<Parameters>(arguments)...);
  check_launch(cudaGetLastError(), config.where);
}

#else

template <typename... Parameters, typename... Arguments>
void launch(const Launch& config, void (*kernel)(Parameters...), Arguments... arguments) {
  const fibers::Launched what = {reinterpret_cast<const void*>(kernel), config.where};
  (fibers::check_argument(what, static_cast<Parameters>(arguments)), ...);
  fibers::enqueue(config.stream, [=] {
    fibers::dynamic_shared_bytes = config.shared_bytes;
    const auto thread = [&]() LOCKSTEP_HANDS_ARGUMENTS {
      kernel(static_cast<Parameters>(arguments)...);
    };
    fibers::run_grid(what, config.grid, config.block, thread);
  });
  if (fibers::after_launch) fibers::after_launch(config.where);
}

#endif

}  // namespace lockstep::cuda
