#include "runtime/base/host.h"

#include <sys/auxv.h>
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

std::filesystem::path program_path() {
  std::error_code error;
  const std::filesystem::path found = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return found;
  // A relative path begins in the folder in which the program was started, still the current one.
  const auto* started = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  return started == nullptr ? std::filesystem::path() : std::filesystem::absolute(started, error);
}

}  // namespace lockstep
