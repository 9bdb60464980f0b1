#pragma once
// How many threads a rank computes with.

#include <string>

#include "collectives/communicator.h"
#include "runtime/base/cpus.h"
#include "runtime/config/run_config.h"

namespace lockstep::run {

// More threads than CPUs only wait for each other, but an experiment may use a few times as many.
constexpr int kMaxThreadsPerCpu = 4;

// Compute threads of a rank: as configured, or one for each CPU of its share. Throws ConfigError if
// the config asks for more than kMaxThreadsPerCpu for each CPU that this process may run on.
int choose_threads(const RunConfig& config, const CpuShare& share);

// The reason for this number, for the log: "execution.threads", or what limits the share.
std::string reason_for_threads(const RunConfig& config, const CpuShare& share);

// This rank's share of its host's CPUs: ranks of a host that may run on the same CPUs, or are under
// the same quota, share them. `domain_cores`: of the NUMA domain to which this rank is bound; 0 if
// it is bound to none. All ranks together.
CpuShare share_cpus(collectives::Communicator& communicator, int domain_cores = 0);

}  // namespace lockstep::run
