#pragma once
// Makes NCCL's connections before memory is planned, so that the memory that they use is no longer
// counted as free.

#include "collectives/communicator.h"
#include "runtime/cuda/backend.h"

namespace lockstep::cuda {

// The bytes that exchange_first() needs for `ranks` ranks.
size_t first_exchange_bytes(int ranks);

// Runs one small exchange of each kind among the ranks that will exchange with each other, and
// waits for it. NCCL connects them at first use, and allocates most of the GPU memory that it will
// ever use. `memory` is on the device; if this throws, it must outlive the communicator.
// Collective. Throws CommError, Error.
void exchange_first(collectives::Communicator& slices,
                    CudaBackend& backend,
                    const collectives::Topology& topology,
                    std::byte* memory);

}  // namespace lockstep::cuda
