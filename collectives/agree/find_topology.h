#pragma once
// Which node each rank is on.

#include "collectives/communicator.h"
#include "collectives/layout/topology.h"

namespace lockstep::collectives {

// Finds the node of every rank: its host, or the value of LOCKSTEP_NODE, by which ranks of one host
// can act as several nodes. Collective.
Topology find_topology(Communicator& communicator);

}  // namespace lockstep::collectives
