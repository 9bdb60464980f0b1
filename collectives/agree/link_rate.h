#pragma once
// How fast the nodes' network is.

#include "collectives/communicator.h"
#include "collectives/layout/topology.h"

namespace lockstep::collectives {

struct LinkRate {
  double gbit = 0;        // what a node sends to other nodes, while it receives as much, in Gbit/s
  double latency_us = 0;  // of the smallest exchange among nodes
};

// The best of a few exchanges in which a node sends `parts` MiB, of the slowest node. The same on
// every rank. The topology has several nodes. Collective.
LinkRate measure_link(Communicator& communicator, const Topology& topology, int parts = 4);

// Bytes that a node goes on to send of a large exchange while its ranks compute and call nothing of
// the communicator, on a network of this rate: what the system's buffers take. The median of
// a few; the same on every rank. Collective.
double measure_unattended_bytes(Communicator& communicator, const Topology& topology, double gbit);

}  // namespace lockstep::collectives
