#pragma once
// How fast the nodes' network is.

#include "collectives/communicator.h"
#include "collectives/layout/topology.h"

namespace lockstep::collectives {

// What a node sends to other nodes, while it receives as much, in Gbit/s: the best of a few short
// exchanges, of the slowest node. The same on every rank. The topology has several nodes.
// Collective.
double measure_link_gbit(Communicator& communicator, const Topology& topology);

}  // namespace lockstep::collectives
