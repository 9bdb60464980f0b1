#pragma once
// The all-gather of a buffer of equal parts, one of each rank.

#include <cstddef>

#include "collectives/communicator.h"
#include "collectives/topology.h"

namespace lockstep {

// Brings every rank's part, of `bytes` each, of a buffer to all ranks.
void gather_parts(Communicator& communicator,
                  const Topology& topology,
                  std::byte* buffer,
                  size_t bytes);

}  // namespace lockstep
