#pragma once
// Which transport carries the messages among the ranks of a run: comm.transport.

#include <string>

#include "collectives/layout/topology.h"
#include "launcher/ranks/session.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/op_set.h"

namespace lockstep::launcher {

// Moves ranks that MPI started to TCP, if `wanted` is TCP, or if it is AUTO, the ranks are on
// several hosts and MPI has no faster network. From then on session.communicator() is another one.
// Ranks on GPUs, whose slices are not in host memory, keep MPI. Collective. Throws the same
// AgreedError on all ranks if TCP is wanted and a rank cannot be reached, or if MPI is wanted and
// has not started the ranks. Also throws it if a time limit in rank 0's environment, which counts
// for all, is invalid.
void choose_transport(Session& session, CommConfig::Transport wanted, const exec::OpSet& ops);

// For people: "shared memory", "shared memory and tcp", "mpi", "nccl"; "" for one rank.
std::string name_of_transport(const collectives::Communicator& slices,
                              const collectives::Topology& topology);

}  // namespace lockstep::launcher
