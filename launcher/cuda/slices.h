#pragma once
// The transport of gradients and parameters in GPU memory.

#include <memory>
#include <string>

#include "collectives/communicator.h"
#include "launcher/cuda/plugin.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/operation_marks.h"

namespace lockstep::cuda {

// Makes the communicator for slices in the memory of the ranks' backends; `backend` and `marks`
// must outlive it. Collective. Throws AgreedError, CommError, ConfigError.
std::unique_ptr<collectives::Communicator> make_slices(collectives::Communicator& control,
                                                       CudaBackend& backend,
                                                       const GpuRequest& request,
                                                       const exec::ConnectRequest& waiting,
                                                       const OperationMarks& marks);

// NCCL's version, "2.27.3"; empty if there is none.
std::string nccl_version();

}  // namespace lockstep::cuda
