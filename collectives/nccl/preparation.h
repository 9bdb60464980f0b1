#pragma once
// Checks and agreements before NCCL connects the ranks.

#include "collectives/communicator.h"
#include "collectives/nccl/library.h"
#include "collectives/nccl/nccl_communicator.h"

namespace lockstep::collectives {

// Collective over `control`. Throws AgreedError if the libraries' versions differ or are too old,
// or if ranks share a GPU without share_gpu. Returns the id by which the ranks find each other.
ncclUniqueId prepare_nccl(Communicator& control,
                          const NcclOptions& options,
                          const NcclLibrary& library);

}  // namespace lockstep::collectives
