// Launches of kernels find, as nvcc's do, what has gone wrong on the stand-in before.
#include <cuda_runtime_api.h>

#include "runtime/cuda/check.h"
#include "tests/fibers/host_stream.h"

namespace lockstep::fibers {
namespace {

[[maybe_unused]] const bool set = [] {
  after_launch = [](const std::source_location& where) {
    cuda::check_launch(cudaGetLastError(), where);
  };
  return true;
}();

}  // namespace
}  // namespace lockstep::fibers
