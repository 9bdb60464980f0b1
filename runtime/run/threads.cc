#include "runtime/run/threads.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "collectives/agree/agreement.h"
#include "runtime/base/error.h"
#include "runtime/base/host.h"

namespace lockstep::run {

int choose_threads(const RunConfig& config, const CpuShare& share) {
  const int64_t threads = config.execution.threads;
  if (threads == 0) return share.cpus;
  const int cpus = std::max(1, static_cast<int>(allowed_cpus().size()));
  if (threads > int64_t{kMaxThreadsPerCpu} * cpus)
    throw ConfigError(
        "execution.threads: value is {}; allowed here: 0 to {}, {} for each CPU that this process "
        "may use",
        threads,
        kMaxThreadsPerCpu * cpus,
        kMaxThreadsPerCpu);
  return static_cast<int>(threads);
}

std::string reason_for_threads(const RunConfig& config, const CpuShare& share) {
  return config.execution.threads == 0 ? share.reason : "execution.threads";
}

CpuShare share_cpus(collectives::Communicator& communicator, int domain_cores) {
  CpuLimits limits = find_cpu_limits();
  if (domain_cores > 0) limits.domain_cores = domain_cores;
  // A rank's text: host, how many groups have a quota, these groups, numbers of CPUs.
  const std::string host = host_name();
  std::string mine = fmt::format("{} {}", host, limits.quotas.size());
  for (const CpuQuota& quota : limits.quotas) mine += " " + quota.group;
  mine += fmt::format(" {}", fmt::join(limits.cpus, " "));
  std::map<int, int> users;            // by CPU of this host: ranks that may run on it
  std::map<std::string, int> members;  // by group of this host: ranks in it
  for (const std::string& text : collectives::gather_texts(communicator, mine)) {
    std::istringstream words(text);
    std::string its_host, group;
    size_t groups = 0;
    words >> its_host >> groups;
    if (its_host != host) continue;
    for (; groups > 0 && words >> group; --groups) ++members[group];
    for (int cpu; words >> cpu;) ++users[cpu];
  }
  std::vector<int> in_group;
  for (const CpuQuota& quota : limits.quotas) in_group.push_back(members[quota.group]);
  double cpus = 0;
  int on_cpus = 1;
  for (const int cpu : limits.cpus) {
    cpus += 1.0 / users[cpu];
    on_cpus = std::max(on_cpus, users[cpu]);
  }
  return share_of(limits, cpus, on_cpus, in_group);
}

}  // namespace lockstep::run
