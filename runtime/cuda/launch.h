#pragma once
// How kernels are launched: launch({grid, block, stream}, kernel, arguments...). nvcc compiles
// kernel files for the GPU. In the tests, the host's compiler compiles them: a force-included
// header, tests/fibers/cuda_on_host.h, provides the same names and runs the threads of a block as
// fibers.

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

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
  kernel<<<config.grid, config.block, 0, config.stream>>>(static_cast<Parameters>(arguments)...);
  check_launch(cudaGetLastError(), config.where);
}

#else

template <typename... Parameters, typename... Arguments>
void launch(const Launch& config, void (*kernel)(Parameters...), Arguments... arguments) {
  const fibers::Launched what = {reinterpret_cast<const void*>(kernel), config.where};
  (fibers::check_argument(what, static_cast<Parameters>(arguments)), ...);
  fibers::enqueue(config.stream, [=] {
    const auto thread = [&]() LOCKSTEP_HANDS_ARGUMENTS {
      kernel(static_cast<Parameters>(arguments)...);
    };
    fibers::run_grid(what, config.grid, config.block, thread);
  });
  if (fibers::after_launch) fibers::after_launch(config.where);
}

#endif

}  // namespace lockstep::cuda
