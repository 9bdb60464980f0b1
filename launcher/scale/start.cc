#include "launcher/scale/start.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

#include "launcher/processes/run_process.h"
#include "launcher/ranks/hostfile.h"
#include "runtime/base/cpus.h"
#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "runtime/base/text.h"

namespace lockstep::scale {
namespace {

constexpr double kVersionLimit_s = 60;

int number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

// The mpirun beside this program, as in an installed folder, or the one in PATH.
std::string default_mpirun() {
  const std::string beside =
      launcher::find_program((program_path().parent_path() / "mpirun").string());
  return beside.empty() ? "mpirun" : beside;
}

std::string first_line_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  while (line.empty() && std::getline(file, line)) {
  }
  return line;
}

// Whether the words of --mpirun determine the placement of the ranks.
bool determines_placement(const std::vector<std::string>& words) {
  return std::ranges::any_of(words, [](const std::string& word) {
    for (const char* flag : {"bind-to", "map-by", "oversubscribe", "rankfile"})
      if (word.starts_with('-') && word.find(flag) != std::string::npos) return true;
    return false;
  });
}

// Whether the words of --mpirun name hosts.
bool names_hosts(const std::vector<std::string>& words) {
  return std::ranges::any_of(words, [](const std::string& word) {
    return word == "-H" || word == "-f" ||
           (word.starts_with('-') && word.find("host") != std::string::npos);
  });
}

}  // namespace

Hosts read_hostfile(const std::string& path, int cpus) {
  Hosts hosts;
  hosts.count = 0;
  for (const launcher::HostSlots& host : launcher::read_host_slots(path, cpus)) {
    ++hosts.count;
    hosts.max_slots = std::max(hosts.max_slots, host.slots);
    hosts.total_slots += host.slots;
    if (launcher::is_this_host(host.name)) hosts.here_slots += host.slots;
  }
  return hosts;
}

Processors processors_here() {
  const CpuLimits limits = find_cpu_limits();
  Processors here;
  here.cpus = static_cast<int>(limits.cpus.size());
  here.numbers = limits.cpus;
  here.online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  std::set<std::string> cores;
  for (const int cpu : limits.cpus) {
    const std::string siblings = first_line_of(
        fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    cores.insert(siblings.empty() ? std::to_string(cpu) : siblings);
  }
  here.cores = static_cast<int>(cores.size());
  for (const CpuQuota& quota : limits.quotas)
    here.quota = here.quota > 0 ? std::min(here.quota, quota.cpus) : quota.cpus;
  return here;
}

Launcher find_launcher(const std::string& mpirun,
                       const std::string& hostfile,
                       const Processors& here,
                       const std::filesystem::path& folder) {
  Launcher launcher;
  launcher.hostfile = hostfile;
  const bool slurm = std::getenv("SLURM_JOB_ID") != nullptr;
  launcher.command = words_of(mpirun);
  if (launcher.command.empty())
    launcher.command = {slurm && hostfile.empty() && !launcher::find_program("srun").empty()
                            ? "srun"
                            : default_mpirun()};
  launcher.hosts.named = names_hosts(launcher.command);
  const std::string& program = launcher.command[0];
  if (launcher::find_program(program).empty())
    throw ConfigError("--mpirun: '{}' not found; allowed: an MPI's mpirun, or srun", program);
  const std::filesystem::path version_file = folder / "launcher_version.txt";
  launcher::run_process({program, "--version"}, version_file, kVersionLimit_s);
  launcher.version = first_line_of(version_file);
  // A user who starts this as root means the ranks too; Open MPI's mpirun requires both variables.
  if (geteuid() == 0)
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
      setenv(name, "1", 1);
  if (std::filesystem::path(program).filename() == "srun")
    launcher.kind = Launcher::Kind::kSrun;
  else if (launcher.version.find("Open MPI") != std::string::npos ||
           launcher.version.find("OpenRTE") != std::string::npos)
    launcher.kind = Launcher::Kind::kOpenMpi;
  if (!hostfile.empty() && launcher.kind != Launcher::Kind::kOpenMpi)
    throw ConfigError(
        "--hostfile: value is {}; it needs Open MPI's mpirun; for another launcher pass it within "
        "--mpirun",
        hostfile);
  if (!hostfile.empty()) launcher.hosts = read_hostfile(hostfile, here.cpus);
  if (slurm && hostfile.empty())
    launcher.hosts.count = std::max(1, number_in_environment("SLURM_JOB_NUM_NODES"));
  return launcher;
}

int ranks_per_host(const Launcher& launcher, int ranks) {
  const Hosts& hosts = launcher.hosts;
  if (hosts.max_slots > 0) return std::min(ranks, hosts.max_slots);
  return (ranks + hosts.count - 1) / hosts.count;
}

WorldStart start_of(const Launcher& launcher, const Processors& here, int ranks, int threads) {
  WorldStart start;
  start.command = launcher.command;
  const auto add = [&](std::initializer_list<std::string> words) {
    start.command.insert(start.command.end(), words);
  };
  add({"-n", std::to_string(ranks)});
  const bool several = launcher.on_several_hosts();
  const int local =
      several ? std::min(ranks, launcher.hosts.here_slots) : ranks_per_host(launcher, ranks);
  const int local_threads = local * threads;
  start.oversubscribed = local_threads > here.at_once();
  if (launcher.kind == Launcher::Kind::kSrun) {
    add({"--cpus-per-task", std::to_string(threads)});
    start.binding = "as srun does it";
    return start;
  }
  if (!launcher.hostfile.empty()) add({"--hostfile", launcher.hostfile});
  start.binding = "as the launcher does it";
  if (launcher.kind != Launcher::Kind::kOpenMpi || determines_placement(launcher.command))
    return start;
  const std::string slots = fmt::format("slot:PE={}", threads);
  if (start.oversubscribed) {
    add({"--oversubscribe", "--bind-to", "none"});
    start.binding = "none: more threads than CPUs";
  } else if (!several && here.are_some()) {
    // Open MPI would bind to any core of the host. Ranks inherit the affinity mask.
    add({"--oversubscribe", "--bind-to", "none"});
    start.binding = fmt::format("none: within {} of the host's {} CPUs", here.cpus, here.online);
  } else if (several || local_threads <= here.cores) {
    add({"--bind-to", "core", "--map-by", slots});
    start.binding = fmt::format("each rank on {} of its own", counted(threads, "core"));
  } else {
    add({"--use-hwthread-cpus", "--bind-to", "hwthread", "--map-by", slots});
    start.binding =
        fmt::format("each rank on {}, which share cores", counted(threads, "hardware thread"));
  }
  return start;
}

}  // namespace lockstep::scale
