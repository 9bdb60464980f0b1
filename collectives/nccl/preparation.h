#pragma once
// What is checked and agreed on before NCCL connects the ranks.

#include "collectives/communicator.h"
#include "collectives/nccl/library.h"
#include "collectives/nccl/nccl_communicator.h"

namespace lockstep {

// Refuses libraries that differ or are too old, and GPUs that ranks share unless they may;
// collective over `control`. Throws AgreedError. Returns the id under which the ranks find each
// other.
ncclUniqueId prepare_nccl(Communicator& control,
                          const NcclOptions& options,
                          const NcclLibrary& library);

}  // namespace lockstep
