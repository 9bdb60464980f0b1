#pragma once
// How many threads a rank computes with.

#include "collectives/communicator.h"
#include "runtime/config/run_config.h"

namespace lockstep {

// More threads than CPUs only wait for each other; a few times as many may be meant, for a trial.
constexpr int kMostThreadsPerCpu = 4;

// Compute threads of a rank: as configured, or its share of the CPUs that it may use. Throws
// ConfigError where the config wants more than kMostThreadsPerCpu for each of these.
int choose_threads(const RunConfig& config, int sharing_ranks);

// Ranks of this host that may use the same CPUs as this one, itself included: all of them where no
// launcher has bound them. All ranks together.
int ranks_sharing_cpus(Communicator& communicator);

}  // namespace lockstep
