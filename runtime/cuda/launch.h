#pragma once
// How kernels are started: launch({grid, block, stream}, kernel, arguments...). Kernel files
// compile with nvcc for the GPU, and in the tests with the host's compiler, where
// tests/fibers/cuda_on_host.h (included by force) provides the same names and runs the threads of a
// block as fibers.

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

// What a grid has in its second dimension. Tests of the kernels make it small.
inline int64_t most_blocks_down() {
#ifdef __CUDACC__
  return kMostBlocksDown;
#else
  return fibers::most_blocks_down;
#endif
}

#ifdef __CUDACC__

template <typename... Parameters, typename... Arguments>
void launch(const Launch& how, void (*kernel)(Parameters...), Arguments... arguments) {
  kernel<<<how.grid, how.block, 0, how.stream>>>(static_cast<Parameters>(arguments)...);
  check_launch(cudaGetLastError(), how.where);
}

#else

template <typename... Parameters, typename... Arguments>
void launch(const Launch& how, void (*kernel)(Parameters...), Arguments... arguments) {
  fibers::enqueue(how.stream, [=] {
    fibers::run_grid(how.grid, how.block, [&] { kernel(static_cast<Parameters>(arguments)...); });
  });
  if (fibers::after_launch) fibers::after_launch(how.where);
}

#endif

}  // namespace lockstep::cuda
