#include "runtime/cuda/check.h"

#include <cuda_runtime_api.h>

#include "runtime/base/error.h"

namespace lockstep::cuda {

void check_launch(int code, const std::source_location& where) {
  const auto error = static_cast<cudaError_t>(code);
  if (error == cudaSuccess) return;
  throw Error(ExitCode::kInternal,
              fmt::format("{}:{}: the GPU refused a kernel: {} ({})",
                          where.file_name(),
                          where.line(),
                          cudaGetErrorString(error),
                          cudaGetErrorName(error)));
}

}  // namespace lockstep::cuda
