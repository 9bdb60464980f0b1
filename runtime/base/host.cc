#include "runtime/base/host.h"

#include <unistd.h>

#include <array>
#include <fstream>

namespace lockstep {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return host_name() + "/" + boot;
}

}  // namespace lockstep
