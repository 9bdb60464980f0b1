#pragma once

#include <memory>

#include "collectives/communicator.h"
#include "launcher/cuda/plugin.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// The communicator of slices in the memory of several ranks' GPUs, whose work `compute` queues. All
// ranks together. Throws AgreedError, CommError.
std::unique_ptr<Communicator> make_slices(Communicator& control,
                                          Stream compute,
                                          const GpuRequest& request);

}  // namespace lockstep::cuda
