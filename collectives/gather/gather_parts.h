#pragma once
// The all-gather of a buffer of equal parts, one of each rank.

#include <cstddef>

#include "collectives/communicator.h"
#include "collectives/topology.h"

namespace lockstep {

// All-gather of every rank's part, of `bytes` each, of a buffer.
void gather_parts(Communicator& communicator,
                  const Topology& topology,
                  std::byte* buffer,
                  size_t bytes);

}  // namespace lockstep
