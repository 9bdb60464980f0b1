#pragma once
// NCCL's connections, made before memory is planned: what they take is then no longer free.

#include "collectives/communicator.h"
#include "runtime/cuda/backend.h"

namespace lockstep::cuda {

// Bytes of `memory` for so many ranks.
size_t first_exchange_bytes(int ranks);

// One small exchange of each kind between the ranks that will exchange with each other, waited for:
// NCCL connects them at first use, and takes most of the GPU's memory that it will take.
// `memory`, on the device, outlives the communicator where this throws. All ranks together. Throws
// CommError, Error.
void exchange_first(Communicator& slices,
                    CudaBackend& backend,
                    const Topology& topology,
                    std::byte* memory);

}  // namespace lockstep::cuda
