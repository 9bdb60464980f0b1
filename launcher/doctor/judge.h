#pragma once
// From facts to findings: pure functions.

#include <functional>
#include <string>
#include <vector>

#include "launcher/doctor/facts.h"
#include "launcher/doctor/finding.h"

namespace lockstep::doctor {

Findings judge(const RunFacts& run);

// The parts of judge(), by area.
void judge_start(const RunFacts& run, Findings& findings);
void judge_cpus(const RunFacts& run, Findings& findings);
void judge_memory(const RunFacts& run, Findings& findings);
void judge_limits(const RunFacts& run, Findings& findings);
void judge_disk(const RunFacts& run, Findings& findings);
void judge_network(const RunFacts& run, Findings& findings);
void judge_host_pairs(const RunFacts& run, Findings& findings);
void judge_clocks(const RunFacts& run, Findings& findings);
void judge_gpus(const RunFacts& run, Findings& findings);

// The ranks of a host, in rank order.
struct HostRanks {
  std::string name;
  std::vector<int> numbers;
  std::vector<const RankFacts*> ranks;

  const RankFacts& first() const { return *ranks.front(); }
};
std::vector<HostRanks> hosts_of(const RunFacts& run);

// Whether MPI and NCCL would choose the port. Any Ethernet card may call itself RoCE.
bool carries_messages(const RdmaPort& port);

// How many CPUs each rank of a host has, if ranks that may run on the same CPU share it.
std::vector<double> cpu_shares(const HostRanks& host);

// "A on node1; B on node2 and node3" if the hosts' texts differ; else empty.
std::string differences(const std::vector<HostRanks>& hosts,
                        const std::function<std::string(const HostRanks&)>& text_of);

// "a, b, c and 4 more".
std::string first_of(const std::vector<std::string>& items);

// "3.2 GiB".
std::string bytes_text(int64_t bytes);

}  // namespace lockstep::doctor
