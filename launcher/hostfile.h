#pragma once
// Files that name hosts, in Open MPI's manner.

#include <string>
#include <vector>

namespace lockstep {

struct HostSlots {
  std::string name;
  int slots = 1;  // how many ranks may run there
};

// Reads lines "HOST [slots=N]", with comments after #; a host without a number has `cpus`. Throws
// ConfigError, also where the file names no host.
std::vector<HostSlots> read_host_slots(const std::string& path, int cpus);

bool is_this_host(const std::string& name);

}  // namespace lockstep
