#include "collectives/nccl/check.h"

#include "runtime/base/error.h"
#include "runtime/base/host.h"

namespace lockstep::collectives {

NcclCheck::NcclCheck(const NcclLibrary& library, int rank)
    : library_(library), who_(fmt::format("rank {} on {}", rank, host_name())) {}

void NcclCheck::nccl(ncclResult_t result,
                     ncclComm_t communicator,
                     const char* expression,
                     const char* file,
                     int line) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* last = library_.get_last_error(communicator);
  const bool more = last != nullptr && *last != '\0';
  throw CommError("{}: NCCL: {} failed: {}{}{} ({}:{})",
                  who_,
                  expression,
                  library_.get_error_string(result),
                  more ? "; " : "",
                  more ? last : "",
                  file,
                  line);
}

void NcclCheck::cuda(cudaError_t error, const char* expression, const char* file, int line) const {
  if (error == cudaSuccess) return;
  throw CommError("{}: CUDA: {} failed: {} ({}) ({}:{})",
                  who_,
                  expression,
                  cudaGetErrorString(error),
                  cudaGetErrorName(error),
                  file,
                  line);
}

}  // namespace lockstep::collectives
