// Judges what concerns a host alone: its CPUs, memory, limits and the run folder's file system.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "launcher/doctor/judge.h"
#include "launcher/ranks/mpi_environment.h"
#include "runtime/base/text.h"

namespace lockstep::doctor {
namespace {

constexpr Level kWarning = Level::kWarning, kError = Level::kError;
constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;

// "rank 0", "ranks 0, 1 and 6 more".
std::string ranks_text(const std::vector<int>& ranks) {
  constexpr size_t kNamed = 4;
  return fmt::format(
      "rank{} {}", plural(ranks.size()), named_first(ranks.size(), kNamed, [&](size_t i) {
        return std::to_string(ranks[i]);
      }));
}

void judge_binding(const HostRanks& host, Findings& findings) {
  constexpr double kOne = 0.99;
  const std::vector<double> shares = cpu_shares(host);
  std::set<int> used;
  std::vector<int> crowded;
  for (size_t i = 0; i < host.ranks.size(); ++i) {
    const std::vector<int>& allowed = host.ranks[i]->cpus.allowed;
    used.insert(allowed.begin(), allowed.end());
    if (shares[i] < kOne && !allowed.empty()) crowded.push_back(host.numbers[i]);
  }
  const int cpus = static_cast<int>(used.size()), all = host.first().cpus.of_host;
  if (!crowded.empty())
    findings.add(kWarning,
                 host.name,
                 "cpus.crowded",
                 fmt::format("{} share CPUs, with {:.2g} of a CPU for each",
                             ranks_text(crowded),
                             *std::ranges::min_element(shares)),
                 "They take turns, and all other ranks wait for them at every step",
                 cpus < all
                     ? "Bind them to CPUs of their own, as with mpirun --bind-to none or srun "
                       "--cpus-per-task"
                     : "Start fewer ranks on this host");
  // One hyperthread of each core is half of the CPUs, and fine. If the ranks have not met, the
  // others are unknown.
  const bool met = host.first().start.why_apart.empty();
  if (met && cpus > 0 && 2 * cpus + (host.first().cpus.hyperthreads ? 1 : 0) <= all)
    findings.add(
        kWarning,
        host.name,
        "cpus.bound",
        fmt::format("{} {} bound to {} of {} CPUs",
                    ranks_text(host.numbers),
                    host.numbers.size() == 1 ? "is" : "are",
                    cpus,
                    all),
        fmt::format("{} idle", counted(all - cpus, "CPU") + (all - cpus == 1 ? " is" : " are")),
        "Start with mpirun --bind-to none, srun --cpus-per-task or without taskset; "
        "`lockstep launch` binds ranks to NUMA domains");
  findings.ok(host.name,
              "cpus.binding",
              fmt::format("{} for {}", counted(cpus, "CPU"), counted(host.ranks.size(), "rank")));
}

// Environment variables that leave CPUs of a rank's share unused.
void judge_thread_variables(const HostRanks& host, Findings& findings) {
  const std::vector<double> shares = cpu_shares(host);
  for (size_t i = 0; i < host.ranks.size(); ++i) {
    const CpuFacts& cpus = host.ranks[i]->cpus;
    const int share = std::max(1, static_cast<int>(shares[i] + 0.01));
    for (const auto& [name, value] : {std::pair("OMP_NUM_THREADS", cpus.omp_num_threads),
                                      std::pair("SLURM_CPUS_PER_TASK", cpus.slurm_cpus_per_task)}) {
      // With hyperthreads, Slurm gives a task all CPUs of its cores, and may count only the cores.
      const bool of_slurm = name[0] == 'S';
      if (value == 0 || value >= share || (of_slurm && 2 * value >= share)) continue;
      findings.add(kWarning,
                   host.name,
                   "cpus.threads",
                   fmt::format("{}={} though each rank has {}", name, value, counted(share, "CPU")),
                   fmt::format("A rank computes with {}", counted(value, "thread")),
                   of_slurm ? "Give srun or sbatch a larger --cpus-per-task"
                            : "Unset it (torchrun sets it to 1), or set execution.threads");
    }
  }
}

void judge_quota(const HostRanks& host, Findings& findings) {
  const CpuFacts& cpus = host.first().cpus;
  constexpr double kRounding = 0.01, kThrottled = 0.1;
  const char* const remedy =
      "Raise docker --cpus or Kubernetes limits.cpu to a whole number of CPUs for each rank, or "
      "start fewer ranks";
  if (cpus.quota > 0) {
    const double fraction = std::ceil(cpus.quota - kRounding) - cpus.quota;
    const auto ranks =
        static_cast<double>(std::ranges::count_if(host.ranks, [&](const RankFacts* rank) {
          return rank->cpus.quota_group == cpus.quota_group;
        }));
    const std::string text = fmt::format("a quota of {:.3g} CPUs", cpus.quota);
    if (cpus.quota < ranks - kRounding || fraction > kRounding)
      findings.add(kWarning,
                   host.name,
                   "cpus.quota",
                   fmt::format("{} for {}", text, counted(static_cast<int>(ranks), "rank")),
                   "The kernel stops threads that have used it up, for tens of milliseconds at a "
                   "time, and all ranks wait for them",
                   remedy);
    else
      findings.ok(host.name, "cpus.quota", text);
  }
  if (cpus.throttled > kThrottled)
    findings.add(kWarning,
                 host.name,
                 "cpus.throttled",
                 fmt::format("the quota stopped this control group in {:.0f}% of its periods",
                             100 * cpus.throttled),
                 "Threads stand still for tens of milliseconds at a time, and all ranks wait",
                 remedy);
}

void judge_domains(const HostRanks& host, Findings& findings) {
  const int domains = host.first().cpus.domains;
  if (domains < 2) return;
  // Alone, nobody has chosen a number of ranks. Ranks on GPUs are bound next to them.
  const bool chosen = !host.first().start.library.empty() && host.first().gpus.gpus.empty();
  if (chosen && static_cast<int>(host.ranks.size()) < domains)
    findings.add(kWarning,
                 host.name,
                 "cpus.numa",
                 fmt::format("{} for {} NUMA domains", counted(host.ranks.size(), "rank"), domains),
                 "Threads read weights and activations from memory of the other domains, which is "
                 "slower",
                 "`lockstep launch` without -n starts one rank for each domain and binds it");
  else
    findings.ok(host.name, "cpus.numa", fmt::format("{} NUMA domains", domains));
}

void judge_vector_units(const RunFacts& run, Findings& findings) {
  for (const HostRanks& host : hosts_of(run)) {
    const CpuFacts& cpus = host.first().cpus;
    for (const RankFacts* rank : host.ranks)
      if (rank->cpus.simd != rank->cpus.best_simd)
        findings.add(kWarning,
                     host.name,
                     "simd.lowered",
                     fmt::format("LOCKSTEP_SIMD={} though the processor has {}",
                                 rank->cpus.simd,
                                 rank->cpus.best_simd),
                     "Slower products of matrices",
                     "Unset LOCKSTEP_SIMD");
    if (cpus.has_amx && cpus.best_simd != "AMX")
      findings.add(kWarning,
                   host.name,
                   "simd.no_amx",
                   "the processor has AMX, but this process may not use it",
                   "Products in BF16 are several times slower",
                   "Use a kernel of 5.16 or newer, and let the container call arch_prctl");
    findings.ok(host.name, "simd.units", cpus.simd);
  }
  std::string all;
  std::set<std::string> names;
  for (size_t r = 0; r < run.ranks.size(); ++r)
    if (names.insert(run.ranks[r].cpus.simd).second)
      append_item(all, fmt::format("{} from rank {} on", run.ranks[r].cpus.simd, r));
  if (names.size() > 1)
    findings.add(kWarning,
                 "",
                 "simd.differ",
                 "the ranks' vector units differ: " + all,
                 "All ranks wait for the slowest; with BF16, a mix of AMX and other units is "
                 "refused, since it has other bits",
                 "Use hosts with the same processors, and LOCKSTEP_SIMD on all ranks or on none");
}

}  // namespace

void judge_cpus(const RunFacts& run, Findings& findings) {
  const std::vector<HostRanks> hosts = hosts_of(run);
  for (const HostRanks& host : hosts) {
    judge_binding(host, findings);
    judge_thread_variables(host, findings);
    judge_quota(host, findings);
    judge_domains(host, findings);
  }
  const std::string models = differences(hosts, [](const HostRanks& host) {
    return fmt::format("{} CPUs ({})", host.first().cpus.of_host, host.first().cpus.model);
  });
  if (!models.empty())
    findings.add(kWarning,
                 "",
                 "cpus.differ",
                 "the hosts' processors differ: " + models,
                 "All ranks wait for the slowest host at every step",
                 "Use hosts of one kind");
  judge_vector_units(run, findings);
}

void judge_memory(const RunFacts& run, Findings& findings) {
  for (const HostRanks& host : hosts_of(run)) {
    const MemoryFacts& memory = host.first().memory;
    const auto ranks = static_cast<int64_t>(host.ranks.size());
    const bool limited = memory.group_bytes != kUnlimited;
    std::string text = fmt::format("{} available of {}",
                                   bytes_text(memory.available_bytes),
                                   bytes_text(limited ? memory.group_bytes : memory.total_bytes));
    if (limited) text += ", the control group's limit";
    if (memory.available_bytes < ranks * kGiB)
      findings.add(kWarning,
                   host.name,
                   "memory.little",
                   fmt::format("{}, for {}", text, counted(ranks, "rank")),
                   "A training that needs more is refused, or killed if other programs grow",
                   limited ? "Raise docker --memory, Kubernetes limits.memory or Slurm's --mem"
                           : "End other programs, or start fewer ranks on this host");
    else
      findings.ok(host.name, "memory.available", text);
    if (memory.huge_pages == "never")
      findings.add(kWarning,
                   host.name,
                   "memory.huge_pages",
                   "transparent huge pages are switched off",
                   "Large tensors lie on pages of 4 KiB, and the processor looks up more addresses",
                   "As root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    else if (!memory.huge_pages.empty())
      findings.ok(host.name, "memory.huge_pages", "huge pages: " + memory.huge_pages);
    // Open MPI keeps its ranks' messages there, NCCL those that pass through the host.
    const bool open_mpi = host.first().start.launcher == "mpirun" && ranks > 1;
    const int64_t wanted =
        std::max(open_mpi ? ranks * static_cast<int64_t>(launcher::kMpiSegmentBytes) : 0,
                 host.first().gpus.gpus.size() > 1 ? 256 * kMiB : 0);
    if (memory.shm_free_bytes < wanted)
      findings.add(kError,
                   host.name,
                   "memory.shm",
                   fmt::format("/dev/shm has {} free, and {} {} needed",
                               bytes_text(std::max<int64_t>(0, memory.shm_free_bytes)),
                               bytes_text(wanted),
                               "are"),
                   "MPI or NCCL fails at the start, or ends by a bus error later",
                   "Start a container with --shm-size=1g, or remove old files there");
    else if (memory.shm_bytes >= 0)
      findings.ok(host.name,
                  "memory.shm",
                  fmt::format("/dev/shm has {} free of {}",
                              bytes_text(memory.shm_free_bytes),
                              bytes_text(memory.shm_bytes)));
  }
}

namespace {

bool below(int64_t limit, int64_t wanted) { return limit != kUnlimited && limit < wanted; }

void judge_threads(const HostRanks& host, Findings& findings) {
  constexpr int64_t kBesides = 8;  // threads of a rank that do not compute
  int64_t threads = 0;
  for (const double share : cpu_shares(host)) threads += static_cast<int64_t>(share) + kBesides;
  const LimitFacts& limits = host.first().limits;
  const std::string needed = fmt::format("the ranks here start about {} threads", threads);
  const char* const cost = "A rank that cannot start a thread ends with an error";
  if (below(limits.pids_left, 2 * threads))
    findings.add(limits.pids_left < threads ? kError : kWarning,
                 host.name,
                 "limits.pids",
                 fmt::format("the control group may start {} more processes and threads; {}",
                             limits.pids_left,
                             needed),
                 cost,
                 "Raise docker --pids-limit or the pod's limit");
  if (below(limits.nproc, 4 * threads))
    findings.add(limits.nproc < threads ? kError : kWarning,
                 host.name,
                 "limits.nproc",
                 fmt::format("ulimit -u is {}, for all processes and threads of this user; {}",
                             limits.nproc,
                             needed),
                 cost,
                 "ulimit -u unlimited, or nproc in /etc/security/limits.conf");
}

}  // namespace

void judge_limits(const RunFacts& run, Findings& findings) {
  constexpr int64_t kFiles = 1024, kBesides = 32;
  const auto ranks = static_cast<int64_t>(run.ranks.size());
  for (const HostRanks& host : hosts_of(run)) {
    const LimitFacts& limits = host.first().limits;
    const int before = findings.count(kWarning) + findings.count(kError);
    if (below(limits.nofile, std::max(kFiles, ranks + 2 * kBesides)))
      findings.add(limits.nofile < ranks + kBesides ? kError : kWarning,
                   host.name,
                   "limits.nofile",
                   fmt::format("ulimit -n is {}, for connections to {} and open files",
                               limits.nofile,
                               counted(ranks, "rank")),
                   "A rank that cannot open a connection or a data file ends with an error",
                   "ulimit -n 65536, or nofile in /etc/security/limits.conf");
    judge_threads(host, findings);
    const auto& ports = host.first().network.rdma;
    const auto active = std::ranges::find_if(ports, carries_messages);
    if (active != ports.end() && below(limits.memlock_bytes, kGiB))
      findings.add(kWarning,
                   host.name,
                   "limits.memlock",
                   fmt::format("ulimit -l is {}, and {} needs locked memory",
                               bytes_text(limits.memlock_bytes),
                               active->kind),
                   "MPI and NCCL fail, or fall back to TCP",
                   "ulimit -l unlimited, memlock in /etc/security/limits.conf, docker --ulimit "
                   "memlock=-1, or LimitMEMLOCK=infinity for slurmd");
    if (limits.file_bytes != kUnlimited)
      findings.add(kWarning,
                   host.name,
                   "limits.fsize",
                   fmt::format("ulimit -f allows files of {}", bytes_text(limits.file_bytes)),
                   "Larger checkpoints cannot be written",
                   "ulimit -f unlimited");
    if (limits.address_space_bytes != kUnlimited)
      findings.add(
          kWarning,
          host.name,
          "limits.address_space",
          fmt::format("ulimit -v allows {} of addresses", bytes_text(limits.address_space_bytes)),
          "Mapping data files, sharing memory and CUDA fail, since they need many more "
          "addresses than memory",
          "ulimit -v unlimited");
    if (findings.count(kWarning) + findings.count(kError) == before)
      findings.ok(
          host.name,
          "limits.all",
          fmt::format(
              "ulimit -n {}, -l {}",
              limits.nofile == kUnlimited ? "unlimited" : std::to_string(limits.nofile),
              limits.memlock_bytes == kUnlimited ? "unlimited" : bytes_text(limits.memlock_bytes)));
  }
}

void judge_disk(const RunFacts& run, Findings& findings) {
  constexpr double kSlowMs = 100;
  constexpr int64_t kFewFiles = 1000;
  const DiskFacts& disk = run.ranks.front().disk;
  const std::string& host = run.ranks.front().host;
  if (disk.path.empty()) return;
  const char* const elsewhere = "Give another folder with --run-dir, or output.run_dir";
  if (!disk.failure.empty())
    return findings.add(kError,
                        host,
                        "disk.failure",
                        "the run folder: " + disk.failure,
                        "Neither checkpoints nor metrics can be written",
                        elsewhere);
  const std::string name = fmt::format("{} ({})", disk.path, disk.type);
  if (disk.free_bytes >= 0 && disk.free_bytes < kGiB)
    findings.add(disk.free_bytes < 64 * kMiB ? kError : kWarning,
                 host,
                 "disk.space",
                 fmt::format("{} has {} free", name, bytes_text(disk.free_bytes)),
                 "Checkpoints may not fit: the run goes on without new ones",
                 elsewhere);
  if (disk.free_files >= 0 && disk.free_files < kFewFiles)
    findings.add(kWarning,
                 host,
                 "disk.files",
                 fmt::format("{} has room for {} more files", name, disk.free_files),
                 "Checkpoints of several files may not fit",
                 elsewhere);
  if (disk.type == "tmpfs" || disk.type == "ramfs")
    findings.add(kWarning,
                 host,
                 "disk.memory",
                 name + " is memory",
                 "Checkpoints take memory from the training, and are lost when the host restarts",
                 elsewhere);
  if (disk.sync_ms + disk.rename_ms > kSlowMs)
    findings.add(kWarning,
                 host,
                 "disk.slow",
                 fmt::format("{}: a small file takes {:.0f} ms to sync and {:.0f} ms to rename",
                             name,
                             disk.sync_ms,
                             disk.rename_ms),
                 "Every checkpoint waits several times as long",
                 elsewhere);
  else
    findings.ok(host,
                "disk.times",
                fmt::format("{}, {} free, a small file is synced in {:.1f} ms and renamed in "
                            "{:.1f} ms",
                            name,
                            bytes_text(disk.free_bytes),
                            disk.sync_ms,
                            disk.rename_ms));
}

}  // namespace lockstep::doctor
