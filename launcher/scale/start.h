#pragma once
// How the ranks of a world are started: by Open MPI's mpirun, another MPI's, or Slurm's srun.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::scale {

// Where the ranks go.
struct Hosts {
  int count = 1;
  int most_slots = 0;   // of one host; 0: as many as there are ranks
  int total_slots = 0;  // of all; 0: not known
  int here_slots = 0;   // of this host where a hostfile names it; 0: it does not
  bool named = false;   // by the words of --mpirun: how many they are is not known
};

// Reads lines "HOST [slots=N]" in Open MPI's manner; a host without a number counts `cpus`. Throws
// ConfigError.
Hosts read_hostfile(const std::string& path, int cpus);

// CPUs that this process may run on, and the cores that these are part of.
struct Processors {
  int cpus = 1;
  int cores = 1;
  std::vector<int> numbers = {};  // of the CPUs, as the kernel has them
  int online = 0;                 // CPUs of the host; 0: not known
  double quota = 0;               // CPUs that a control group allows; 0: no limit

  // An affinity mask, as of taskset or a cpuset, keeps this process off others.
  bool are_some() const { return cpus < online; }
  // Threads that run at the same time.
  int at_once() const {
    return quota > 0 ? std::min(cpus, static_cast<int>(std::ceil(quota))) : cpus;
  }
};
Processors processors_here();

struct Launcher {
  enum class Kind { kOpenMpi, kSrun, kOther };
  Kind kind = Kind::kOther;
  std::vector<std::string> command;  // "mpirun", or the words of --mpirun
  std::string version;               // the first line that it says of itself
  std::string hostfile;              // may be empty
  Hosts hosts;

  // Whether all ranks are children of the launcher on this host.
  bool starts_here() const { return kind == Kind::kOpenMpi && !on_several_hosts(); }
  bool on_several_hosts() const {
    const bool elsewhere = !hostfile.empty() && hosts.here_slots == 0;
    return hosts.count > 1 || hosts.named || elsewhere;
  }
};

// Chooses: the words of --mpirun if given; srun within an allocation of Slurm and without
// --hostfile; else mpirun, first the one beside this program. Asks it for its version; that text
// stays in `folder`. As root sets the variables with which Open MPI lets root start ranks. Throws
// ConfigError.
Launcher find_launcher(const std::string& mpirun,
                       const std::string& hostfile,
                       const Processors& here,
                       const std::filesystem::path& folder);

// Ranks on the fullest host of a world.
int ranks_per_host(const Launcher& launcher, int ranks);

struct WorldStart {
  std::vector<std::string> command;  // to be followed by program and arguments
  std::string binding;               // in words
  bool oversubscribed = false;       // more threads than CPUs
};

WorldStart start_of(const Launcher& launcher, const Processors& here, int ranks, int threads);

}  // namespace lockstep::scale
