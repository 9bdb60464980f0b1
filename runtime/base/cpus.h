#pragma once
// How many CPUs this process may use.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// The indices of the CPUs that this process may run on (its affinity mask), in increasing order.
// Empty if the kernel does not report them.
std::vector<int> allowed_cpus();

// The CPU time that a control group allows, as docker --cpus and limits.cpu of Kubernetes set it.
struct CpuQuota {
  double cpus = 0;    // CPU seconds per second, above 0
  std::string group;  // identifies the group on this host
};
// The quotas of this process's groups, innermost first. For `root` see control_groups().
std::vector<CpuQuota> cpu_quotas(const std::filesystem::path& root = "/");

// What limits the threads of this process.
struct CpuLimits {
  std::vector<int> cpus;         // allowed_cpus()
  std::vector<CpuQuota> quotas;  // cpu_quotas()
  // Set if the environment has these variables: OMP_NUM_THREADS, SLURM_CPUS_PER_TASK.
  std::optional<int> omp_num_threads;
  std::optional<int> slurm_cpus_per_task;
  // Set if this process is bound to the CPUs of a NUMA domain: the cores there.
  std::optional<int> domain_cores = std::nullopt;
};
CpuLimits find_cpu_limits();

// The number of CPUs that one rank may use, and the limit that decides it.
struct CpuShare {
  int cpus = 1;
  std::string reason;  // "2 CPUs", "a quota of 1.5 CPUs", "8 CPUs for 2 ranks"
};
// The share of one rank if `on_cpus` ranks run on the same CPUs and in_group[i] ranks share quota
// i. `cpus` is the sum over the CPUs of the mask, each divided by the number of ranks that may use
// it. A quota is rounded up to whole CPUs before it is divided.
CpuShare share_of(const CpuLimits& limits,
                  double cpus,
                  int on_cpus,
                  const std::vector<int>& in_group);
// The same if all `ranks` ranks have these limits.
CpuShare share_of(const CpuLimits& limits, int ranks);

// The number of CPUs for a process that shares them with no other rank.
int usable_cpus();

}  // namespace lockstep
