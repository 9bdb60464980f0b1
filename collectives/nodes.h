#pragma once
// What the ranks do together about the nodes that they are on.

#include <cstddef>

#include "collectives/communicator.h"
#include "collectives/topology.h"

namespace lockstep {

// Asks every rank for its node: the host, or what LOCKSTEP_NODE says instead, by which ranks of one
// host can stand for several. All ranks together.
Topology find_topology(Communicator& communicator);

// Brings every rank's part, of `bytes` each, of a buffer to all ranks.
void gather_parts(Communicator& communicator,
                  const Topology& topology,
                  std::byte* buffer,
                  size_t bytes);

}  // namespace lockstep
