#include "runtime/run/threads.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>

#include "collectives/agreement.h"
#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "runtime/base/threads.h"

namespace lockstep {

int choose_threads(const RunConfig& config, int sharing_ranks) {
  const int cpus = available_cpus();
  const int64_t threads = config.execution.threads;
  if (threads == 0) return std::max(1, cpus / sharing_ranks);
  if (threads > int64_t{kMostThreadsPerCpu} * cpus)
    throw ConfigError(
        "execution.threads: value is {}; allowed here: 0 to {}, {} for each CPU that this process "
        "may use",
        threads,
        kMostThreadsPerCpu * cpus,
        kMostThreadsPerCpu);
  return static_cast<int>(threads);
}

int ranks_sharing_cpus(Communicator& communicator) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof(cpus), &cpus);
  std::string mine = host_name() + ":";
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &cpus)) mine += fmt::format(" {}", cpu);
  }
  const std::vector<std::string> all = gather_texts(communicator, mine);
  return static_cast<int>(std::count(all.begin(), all.end(), mine));
}

}  // namespace lockstep
