#include "runtime/cuda/check.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <array>

#include "runtime/base/error.h"

namespace lockstep::cuda {

void check(int code, const char* expression, const std::source_location& where) {
  const auto error = static_cast<cudaError_t>(code);
  if (error == cudaSuccess) return;
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess) device = -1;
  const std::string message = fmt::format("{}:{}: {} failed: {} ({}), GPU {} of {}",
                                          where.file_name(),
                                          where.line(),
                                          expression,
                                          cudaGetErrorString(error),
                                          cudaGetErrorName(error),
                                          device,
                                          host.data());
  if (error == cudaErrorMemoryAllocation) throw MemoryError("{}", message);
  throw Error(ExitCode::kInternal, message);
}

void check_launch(int code, const std::source_location& where) {
  check(code, "the launch of a kernel, or work queued before it,", where);
}

}  // namespace lockstep::cuda
