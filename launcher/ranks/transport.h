#pragma once
// What carries the messages between the ranks of a run: comm.transport.

#include <string>

#include "collectives/topology.h"
#include "launcher/ranks/session.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/op_set.h"

namespace lockstep {

// Moves ranks that MPI started to TCP where `wanted` says so or, with AUTO, they are on several
// hosts and MPI has nothing better: from then on session.communicator() is another one. Ranks whose
// memory the slices do not lie in, on GPUs, stay where they are. All ranks together. Throws the
// same AgreedError on all of them: TCP is asked for and a rank cannot be reached; MPI is, and did
// not start the ranks; a time limit in rank 0's environment, which counts for all, is none.
void choose_transport(Session& session, CommConfig::Transport wanted, const OpSet& ops);

// For people: "shared memory", "shared memory and tcp", "mpi", "nccl", or "" of one rank.
std::string name_of_transport(const Communicator& slices, const Topology& topology);

}  // namespace lockstep
