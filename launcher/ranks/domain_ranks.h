#pragma once
// One rank for each NUMA domain of a host: each computes with memory that is near.

#include <string>
#include <string_view>
#include <vector>

#include "launcher/ranks/cpu_domains.h"
#include "runtime/base/cpus.h"

namespace lockstep::launcher {

// The ranks of a host, by local rank.
struct DomainRanks {
  struct Rank {
    CpuDomain domain;
    int threads = 1;  // without execution.threads
  };
  std::vector<Rank> ranks;  // one for each domain, or a single one for all of them
  std::string reason;       // "2 NUMA domains of 16 cores"
};

// Returns one rank for each domain. Returns a single one if there is one domain, if a quota of the
// process is no larger than a domain, or if the domains differ so much that more than a quarter of
// the cores would wait: all ranks have about equal shares of a step. A pure function.
DomainRanks plan_domain_ranks(const std::vector<CpuDomain>& domains, const CpuLimits& limits);

// "16 cores", "12 to 16 cores".
std::string counted_range(int least, int most, std::string_view noun);

// Set to 1 by `launch` for ranks of which each has a domain of its own.
inline constexpr const char* kRankPerDomainVariable = "LOCKSTEP_RANK_PER_DOMAIN";

// If `launch` started one rank for each domain of this host, binds this process to its own. Returns
// the number of cores there; 0 if it did not bind, with a warning if it should have.
int bind_rank_to_domain(int local_rank, int local_ranks);

}  // namespace lockstep::launcher
