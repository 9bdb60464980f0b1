#pragma once
// Files that list hosts, in Open MPI's format.

#include <string>
#include <vector>

namespace lockstep::launcher {

struct HostSlots {
  std::string name;
  int slots = 1;  // the number of ranks that may run there
};

// Reads lines "HOST [slots=N]", with comments after #. A host without a number gets `cpus` slots.
// Throws ConfigError, also if the file lists no host.
std::vector<HostSlots> read_host_slots(const std::string& path, int cpus);

bool is_this_host(const std::string& name);

}  // namespace lockstep::launcher
