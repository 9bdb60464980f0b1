#pragma once
// Starts the ranks of a world, with Open MPI's mpirun, another MPI's, or Slurm's srun.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::scale {

// The hosts for the ranks.
struct Hosts {
  int count = 1;
  int max_slots = 0;    // of one host; 0: as many as ranks
  int total_slots = 0;  // of all hosts; 0: unknown
  int here_slots = 0;   // of this host, if a hostfile lists it; otherwise 0
  bool named = false;   // by the arguments of --mpirun; their number is unknown
};

// Reads lines "HOST [slots=N]", Open MPI's format; a host without a number has `cpus` slots. Throws
// ConfigError.
Hosts read_hostfile(const std::string& path, int cpus);

// The CPUs that this process may use, and their cores.
struct Processors {
  int cpus = 1;
  int cores = 1;
  std::vector<int> numbers = {};  // of the CPUs, in the kernel's numbering
  int online = 0;                 // CPUs of the host; 0: unknown
  double quota = 0;               // CPUs that a control group allows; 0: no limit

  // Whether an affinity mask (taskset, cpuset) excludes CPUs of the host.
  bool are_some() const { return cpus < online; }
  // Max number of threads that run at the same time.
  int at_once() const {
    return quota > 0 ? std::min(cpus, static_cast<int>(std::ceil(quota))) : cpus;
  }
};
Processors processors_here();

struct Launcher {
  enum class Kind { kOpenMpi, kSrun, kOther };
  Kind kind = Kind::kOther;
  std::vector<std::string> command;  // "mpirun", or the words of --mpirun
  std::string version;               // the first line of its --version
  std::string hostfile;              // may be empty
  Hosts hosts;

  // Whether all ranks are children of the launcher on this host.
  bool starts_here() const { return kind == Kind::kOpenMpi && !on_several_hosts(); }
  bool on_several_hosts() const {
    const bool elsewhere = !hostfile.empty() && hosts.here_slots == 0;
    return hosts.count > 1 || hosts.named || elsewhere;
  }
};

// Chooses the launcher: the words of --mpirun if given; srun within a Slurm allocation and without
// --hostfile; otherwise mpirun, preferably the one beside this program. Runs it with --version; its
// output is kept in `folder`. If run as root, sets the variables with which Open MPI lets root
// start ranks. Throws ConfigError.
Launcher find_launcher(const std::string& mpirun,
                       const std::string& hostfile,
                       const Processors& here,
                       const std::filesystem::path& folder);

// Ranks on the host that has most of them.
int ranks_per_host(const Launcher& launcher, int ranks);

struct WorldStart {
  std::vector<std::string> command;  // to be followed by the program and its arguments
  std::string binding;               // as text
  bool oversubscribed = false;       // more threads than CPUs
};

WorldStart start_of(const Launcher& launcher, const Processors& here, int ranks, int threads);

}  // namespace lockstep::scale
