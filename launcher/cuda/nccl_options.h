#pragma once
// NCCL's settings, which must be the same on all ranks.

#include "collectives/nccl/nccl_communicator.h"
#include "launcher/cuda/plugin.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/operation_marks.h"

namespace lockstep::cuda {

// The settings for exchanges among the ranks' GPUs. With LOCKSTEP_NCCL_BETWEEN_GRAPHS=1 in rank 0's
// environment, NCCL is called between CUDA graphs instead of being captured in them: a workaround
// for systems on which it cannot be captured. Collective. Throws AgreedError for values other than
// 0 and 1. `marks` must outlive them.
collectives::NcclOptions nccl_options(collectives::Communicator& control,
                                      CudaBackend& backend,
                                      const GpuRequest& request,
                                      const exec::ConnectRequest& waiting,
                                      const OperationMarks& marks);

}  // namespace lockstep::cuda
