#pragma once
// Which nodes the ranks are on.

#include "collectives/communicator.h"
#include "collectives/topology.h"

namespace lockstep {

// Asks every rank for its node: the host, or what LOCKSTEP_NODE says instead, by which ranks of one
// host can stand for several. All ranks together.
Topology find_topology(Communicator& communicator);

}  // namespace lockstep
