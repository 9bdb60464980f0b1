#include "launcher/ranks/mpi_environment.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/base/host.h"

namespace lockstep::launcher {
namespace {

// Reads lines NAME=PATH, with the path relative to the folder.
void find_plugins_in_own_folder() {
  const std::filesystem::path folder = program_path().parent_path().parent_path();
  std::ifstream file(folder / "etc/lockstep/mpi_environment");
  for (std::string line; std::getline(file, line);) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::filesystem::path path = folder / line.substr(equals + 1);
    setenv(line.substr(0, equals).c_str(), path.c_str(), 1);
  }
}

// Every process may read its own memory, so an error means that the system call is forbidden.
bool may_read_memory() {
  char from = 1, to = 0;
  const iovec local{&to, 1}, remote{&from, 1};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

}  // namespace

void prepare_mpi_environment() {
  find_plugins_in_own_folder();
  if (!may_read_memory()) setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
}

}  // namespace lockstep::launcher
