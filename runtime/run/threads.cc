#include "runtime/run/threads.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>

#include "collectives/agreement.h"
#include "runtime/base/host.h"
#include "runtime/base/threads.h"

namespace lockstep {

int choose_threads(const RunConfig& config, int sharing_ranks) {
  if (config.execution.threads > 0) return static_cast<int>(config.execution.threads);
  return std::max(1, available_cpus() / sharing_ranks);
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
