#pragma once
// How NCCL is used: settings that all ranks must have alike.

#include "collectives/nccl/nccl_communicator.h"
#include "launcher/cuda/plugin.h"
#include "runtime/cuda/backend.h"

namespace lockstep::cuda {

// How the ranks' GPUs exchange. With LOCKSTEP_NCCL_BETWEEN_GRAPHS=1 in rank 0's environment NCCL is
// not captured in CUDA graphs, but called between them: a way out where it cannot be captured. All
// ranks together. Throws AgreedError for other values than 0 and 1.
NcclOptions nccl_options(Communicator& control,
                         CudaBackend& backend,
                         const GpuRequest& request,
                         const ConnectRequest& waiting);

}  // namespace lockstep::cuda
