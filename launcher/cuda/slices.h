#pragma once
// Who exchanges gradients and parameters that lie in the memory of GPUs.

#include <memory>

#include "collectives/communicator.h"
#include "launcher/cuda/plugin.h"
#include "runtime/cuda/backend.h"

namespace lockstep::cuda {

// The communicator of slices in the memory of several ranks' backends; `backend` must outlive it.
// All ranks together. Throws AgreedError, CommError, ConfigError.
std::unique_ptr<Communicator> make_slices(Communicator& control,
                                          CudaBackend& backend,
                                          const GpuRequest& request,
                                          const ConnectRequest& waiting);

}  // namespace lockstep::cuda
