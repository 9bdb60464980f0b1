#pragma once
// How many CPUs this process may use.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// The numbers of the CPUs that this process may run on (its affinity mask), increasing. Empty if
// the kernel does not say.
std::vector<int> allowed_cpus();

// CPU time that a control group allows, as docker --cpus and limits.cpu of Kubernetes set it.
struct CpuQuota {
  double cpus = 0;    // CPU seconds a second, above 0
  std::string group;  // tells it from the other groups of this host
};
// Those of this process's groups, innermost first. `root`: see control_groups().
std::vector<CpuQuota> cpu_quotas(const std::filesystem::path& root = "/");

// What limits the threads of this process.
struct CpuLimits {
  std::vector<int> cpus;         // allowed_cpus()
  std::vector<CpuQuota> quotas;  // cpu_quotas()
  // Numbers that the environment names, if it does: OMP_NUM_THREADS, SLURM_CPUS_PER_TASK.
  std::optional<int> omp_num_threads;
  std::optional<int> slurm_cpus_per_task;
};
CpuLimits find_cpu_limits();

// The CPUs that are one rank's own, and what decides their number.
struct CpuShare {
  int cpus = 1;
  std::string reason;  // "2 CPUs", "a quota of 1.5 CPUs", "8 CPUs for 2 ranks"
};
// The share of one of `on_cpus` ranks on the same CPUs, and in_group[i] ranks under quota i. `cpus`:
// the CPUs of the mask, each divided by the ranks that may use it. A quota is rounded up.
CpuShare share_of(const CpuLimits& limits,
                  double cpus,
                  int on_cpus,
                  const std::vector<int>& in_group);
// The same for ranks that all have these limits.
CpuShare share_of(const CpuLimits& limits, int ranks);

// What this process may use if it shares with no other: share_of(find_cpu_limits(), 1).cpus.
int usable_cpus();

}  // namespace lockstep
