#include "runtime/base/cpus.h"

#include <fmt/core.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string_view>

#include "runtime/base/control_group.h"
#include "runtime/base/text.h"

namespace lockstep {
namespace {

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

// The quota of this group, if it sets one.
std::optional<double> quota_in(const ControlGroup& group) {
  double quota = 0, period = 0;  // microseconds
  if (group.version == 2) {
    std::ifstream file(group.folder / "cpu.max");
    if (!(file >> quota >> period)) return std::nullopt;  // "max 100000"
  } else {
    std::ifstream quota_file(group.folder / "cpu.cfs_quota_us"),
        period_file(group.folder / "cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return std::nullopt;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;  // -1: none
  return quota / period;
}

// The folder's device and inode, which are the same in all containers of a host.
std::string identity_of(const std::filesystem::path& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return folder.string();
  return fmt::format("{}:{}", status.st_dev, status.st_ino);
}

// The value of a variable that is a positive integer. If it is a list with one number per nesting
// level ("4,2"), the first number counts. No value if the variable is not set or is anything else.
std::optional<int> number_in_environment(const char* name) {
  const char* const value = std::getenv(name);
  const std::string_view text = value == nullptr ? "" : value;
  const auto number = parse_as<int>(trimmed(text.substr(0, text.find(','))));
  return number > 0 ? number : std::nullopt;
}

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  // The kernel rejects a set that is smaller than its own.
  for (int room = CPU_SETSIZE; room <= 64 * CPU_SETSIZE; room *= 2) {
    const std::unique_ptr<cpu_set_t, FreeCpuSet> set(CPU_ALLOC(room));
    const size_t bytes = CPU_ALLOC_SIZE(room);
    if (set == nullptr || sched_getaffinity(0, bytes, set.get()) != 0) continue;
    for (int cpu = 0; cpu < room; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, set.get())) cpus.push_back(cpu);
    break;
  }
  return cpus;
}

std::vector<CpuQuota> cpu_quotas(const std::filesystem::path& root) {
  std::vector<CpuQuota> quotas;
  for (const ControlGroup& group : control_groups("cpu", root))
    if (const auto quota = quota_in(group)) quotas.push_back({*quota, identity_of(group.folder)});
  return quotas;
}

CpuLimits find_cpu_limits() {
  return {.cpus = allowed_cpus(),
          .quotas = cpu_quotas(),
          .omp_num_threads = number_in_environment("OMP_NUM_THREADS"),
          .slurm_cpus_per_task = number_in_environment("SLURM_CPUS_PER_TASK")};
}

CpuShare share_of(const CpuLimits& limits,
                  double cpus,
                  int on_cpus,
                  const std::vector<int>& in_group) {
  constexpr double kRounding = 1e-6;
  const auto at_least_one = [](double share) {
    return std::max(1, static_cast<int>(share + kRounding));
  };
  const auto ranks = [](int count) {
    return count > 1 ? fmt::format(" for {} ranks", count) : std::string();
  };
  CpuShare share{
      at_least_one(cpus),
      fmt::format("{} CPU{}{}", limits.cpus.size(), plural(limits.cpus.size()), ranks(on_cpus))};
  const auto limit = [&](int max_cpus, const std::string& reason) {
    if (max_cpus < share.cpus) share = {max_cpus, reason};
  };
  for (size_t i = 0; i < limits.quotas.size(); ++i) {
    const double quota = limits.quotas[i].cpus;
    limit(at_least_one(std::ceil(quota - kRounding) / in_group[i]),
          fmt::format("a quota of {:.3g} CPU{}{}", quota, plural(quota), ranks(in_group[i])));
  }
  if (limits.domain_cores)
    limit(*limits.domain_cores,
          fmt::format("{} of a NUMA domain", counted(*limits.domain_cores, "core")));
  if (limits.slurm_cpus_per_task)
    limit(*limits.slurm_cpus_per_task,
          fmt::format("SLURM_CPUS_PER_TASK={}", *limits.slurm_cpus_per_task));
  if (limits.omp_num_threads)
    limit(*limits.omp_num_threads, fmt::format("OMP_NUM_THREADS={}", *limits.omp_num_threads));
  return share;
}

CpuShare share_of(const CpuLimits& limits, int ranks) {
  return share_of(limits,
                  static_cast<double>(limits.cpus.size()) / ranks,
                  ranks,
                  std::vector<int>(limits.quotas.size(), ranks));
}

int usable_cpus() { return share_of(find_cpu_limits(), 1).cpus; }

}  // namespace lockstep
