#pragma once

#include "collectives/communicator.h"
#include "runtime/cuda/backend.h"

namespace lockstep::cuda {

// One small exchange of each kind between the ranks that will exchange with each other, waited for:
// NCCL connects them at first use, and takes memory of the GPU for it. All ranks together. Throws
// CommError, Error.
void exchange_first(Communicator& slices, CudaBackend& backend, const Topology& topology);

}  // namespace lockstep::cuda
