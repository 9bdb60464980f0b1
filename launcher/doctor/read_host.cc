#include "launcher/doctor/read_host.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>

#include "launcher/ranks/cpu_domains.h"
#include "launcher/ranks/host_memory.h"
#include "runtime/base/control_group.h"
#include "runtime/base/cpus.h"
#include "runtime/base/text.h"
#include "runtime/cpu/simd_level.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

std::string line_in(const fs::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

// What follows "KEY" and a colon or blanks in the first such line; empty if there is none.
std::string value_in(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key))
      return std::string(trimmed(std::string_view(line).substr(key.size()), " \t:"));
  return "";
}

std::optional<int64_t> number_in(const fs::path& path) {
  return parse_as<int64_t>(trimmed(line_in(path)));
}

int64_t count_in(const fs::path& path, std::string_view key) {
  return parse_as<int64_t>(words_of(value_in(path, key) + " 0").front()).value_or(0);
}

// The number of CPUs in a list as "0-15,32".
int count_of_list(const std::string& list) {
  int count = 0;
  for (size_t at = 0; at < list.size();) {
    const std::string_view part =
        trimmed(std::string_view(list).substr(at, std::min(list.find(',', at), list.size()) - at));
    const size_t dash = part.find('-');
    const auto first = parse_as<int>(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_as<int>(part.substr(dash + 1));
    if (first && last) count += *last - *first + 1;
    at = std::min(list.find(',', at), list.size()) + 1;
  }
  return count;
}

// The CPUs that the innermost control group admits, or all that are online.
int cpus_of_host(const fs::path& root) {
  for (const ControlGroup& group : control_groups("cpuset", root)) {
    const char* const name = group.version == 2 ? "cpuset.cpus.effective" : "cpuset.effective_cpus";
    for (const char* file : {name, "cpuset.cpus"})
      if (const int count = count_of_list(line_in(group.folder / file)); count > 0) return count;
  }
  return count_of_list(line_in(root / "sys/devices/system/cpu/online"));
}

// The largest share of a group's periods in which it was throttled, among those with enough.
double throttled_share(const fs::path& root) {
  constexpr int64_t kEnough = 100;
  double share = 0;
  for (const ControlGroup& group : control_groups("cpu", root)) {
    const int64_t periods = count_in(group.folder / "cpu.stat", "nr_periods");
    if (periods < kEnough) continue;
    const int64_t throttled = count_in(group.folder / "cpu.stat", "nr_throttled");
    share = std::max(share, static_cast<double>(throttled) / static_cast<double>(periods));
  }
  return share;
}

int64_t limit_of(int resource) {
  rlimit limit{};
  const auto which = static_cast<__rlimit_resource>(resource);
  if (::getrlimit(which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  return static_cast<int64_t>(limit.rlim_cur);
}

// The word in brackets: "always [madvise] never".
std::string chosen_in(const std::string& line) {
  const size_t open = line.find('['), close = line.find(']');
  return open == std::string::npos || close == std::string::npos
             ? ""
             : line.substr(open + 1, close - open - 1);
}

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::string launcher_of() {
  if (!variable("OMPI_COMM_WORLD_SIZE").empty()) return "mpirun";
  if (!variable("SLURM_STEP_ID").empty() && !variable("SLURM_LOCALID").empty()) return "srun";
  if (!variable("PMI_SIZE").empty()) return "mpiexec";
  if (!variable("LOCKSTEP_LAUNCH_ID").empty()) return "launch";
  if (!variable("TORCHELASTIC_RUN_ID").empty()) return "torchrun";
  return variable("RANK").empty() ? "no launcher" : "RANK and WORLD_SIZE";
}

}  // namespace

CpuFacts read_cpus(const fs::path& root) {
  const CpuLimits limits = find_cpu_limits();
  CpuFacts facts;
  facts.allowed = limits.cpus;
  facts.of_host = std::max(cpus_of_host(root), static_cast<int>(facts.allowed.size()));
  facts.hyperthreads = line_in(root / "sys/devices/system/cpu/smt/active") == "1";
  facts.model = value_in(root / "proc/cpuinfo", "model name");
  facts.domains = static_cast<int>(launcher::find_cpu_domains().size());
  for (const CpuQuota& quota : cpu_quotas(root)) {
    if (facts.quota > 0 && quota.cpus >= facts.quota) continue;
    facts.quota = quota.cpus;
    facts.quota_group = quota.group;
  }
  facts.throttled = throttled_share(root);
  facts.omp_num_threads = limits.omp_num_threads.value_or(0);
  facts.slurm_cpus_per_task = limits.slurm_cpus_per_task.value_or(0);
  facts.simd = cpu::name_of(cpu::simd_level());
  facts.best_simd = cpu::name_of(cpu::best_simd_level());
  const std::vector<std::string> flags = words_of(value_in(root / "proc/cpuinfo", "flags"));
  facts.has_amx = std::ranges::find(flags, "amx_bf16") != flags.end();
  return facts;
}

MemoryFacts read_memory(const fs::path& root) {
  constexpr size_t kUnknown = std::numeric_limits<size_t>::max();
  MemoryFacts facts;
  facts.total_bytes = count_in(root / "proc/meminfo", "MemTotal:") * 1024;
  facts.available_bytes = static_cast<int64_t>(launcher::available_memory_bytes(root));
  const size_t limit = launcher::memory_limit_bytes(root);
  // Version 1 writes "no limit" as the largest multiple of a page.
  if (limit != kUnknown && limit < static_cast<size_t>(std::max<int64_t>(facts.total_bytes, 1)))
    facts.group_bytes = static_cast<int64_t>(limit);
  facts.huge_pages = chosen_in(line_in(root / "sys/kernel/mm/transparent_hugepage/enabled"));
  struct statvfs room {};
  if (::statvfs((root / "dev/shm").c_str(), &room) != 0) return facts;
  facts.shm_bytes = static_cast<int64_t>(room.f_blocks * room.f_frsize);
  facts.shm_free_bytes = static_cast<int64_t>(room.f_bavail * room.f_frsize);
  return facts;
}

LimitFacts read_limits(const fs::path& root) {
  LimitFacts facts;
  facts.memlock_bytes = limit_of(RLIMIT_MEMLOCK);
  facts.nofile = limit_of(RLIMIT_NOFILE);
  // The kernel does not count the processes of root.
  facts.nproc = ::geteuid() == 0 ? kUnlimited : limit_of(RLIMIT_NPROC);
  facts.file_bytes = limit_of(RLIMIT_FSIZE);
  facts.address_space_bytes = limit_of(RLIMIT_AS);
  for (const ControlGroup& group : control_groups("pids", root)) {
    const auto most = number_in(group.folder / "pids.max"),
               now = number_in(group.folder / "pids.current");
    if (!most || !now) continue;
    const int64_t left = std::max<int64_t>(0, *most - *now);
    facts.pids_left = facts.pids_left == kUnlimited ? left : std::min(facts.pids_left, left);
  }
  return facts;
}

StartFacts read_start(const launcher::Session& session, const std::string& why_apart) {
  StartFacts facts;
  facts.launcher = launcher_of();
  facts.library = session.library();
  switch (session.mpi_network()) {
    case collectives::MpiNetwork::kPlainTcp: facts.mpi_network = "tcp"; break;
    case collectives::MpiNetwork::kOther: facts.mpi_network = "fast"; break;
    case collectives::MpiNetwork::kUnknown: break;
  }
  facts.why_apart = why_apart;
  const std::string tasks = variable("SLURM_NTASKS");
  facts.slurm_tasks = parse_as<int>(tasks).value_or(0);
  facts.mpi_networks = variable("OMPI_MCA_btl_tcp_if_include");
  facts.nccl_networks = variable("NCCL_SOCKET_IFNAME");
  facts.nccl_ib_disabled = variable("NCCL_IB_DISABLE") == "1";
  facts.visible_gpus = variable("CUDA_VISIBLE_DEVICES");
  return facts;
}

}  // namespace lockstep::doctor
