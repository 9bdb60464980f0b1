#pragma once
// The all-gather of a buffer of equal parts, one for each rank.

#include <cstddef>

#include "collectives/communicator.h"
#include "collectives/layout/topology.h"

namespace lockstep::collectives {

// All-gathers `buffer`, in which every rank has filled its own part of `bytes` bytes.
void gather_parts(Communicator& communicator,
                  const Topology& topology,
                  std::byte* buffer,
                  size_t bytes);

}  // namespace lockstep::collectives
