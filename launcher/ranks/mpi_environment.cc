#include "launcher/ranks/mpi_environment.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "runtime/base/host.h"
#include "runtime/base/streams.h"

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

namespace fs = std::filesystem;

constexpr const char* kFolder = "/dev/shm";

// The number in a variable that mpirun sets; -1 if it is not set.
int number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? -1 : std::atoi(text);
}

void warn_of_little_room(int ranks) {
  struct statvfs room = {};
  if (::statvfs(kFolder, &room) != 0) return;
  const uint64_t bytes = uint64_t{room.f_bavail} * room.f_frsize;
  if (bytes >= kMpiSegmentBytes * static_cast<uint64_t>(ranks)) return;
  print_log(fmt::format(
      "warning: {} has {:.1f} MiB left, and Open MPI takes 4 MiB for each of the {} ranks "
      "here: in Docker, start the container with --shm-size=1g\n",
      kFolder,
      static_cast<double>(bytes) / (1024 * 1024),
      ranks));
}

// Files of this user and host that are too old to be mapped by a process that is starting.
std::set<std::string> old_segments() {
  constexpr std::time_t kSeconds = 60;
  const std::string host = host_name();
  const std::string begin =
      fmt::format("vader_segment.{}.{}.", host.substr(0, host.find('.')), ::geteuid());
  std::set<std::string> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolder, error)) {
    struct stat status = {};
    if (!entry.path().filename().string().starts_with(begin)) continue;
    if (::stat(entry.path().c_str(), &status) != 0 || status.st_uid != ::geteuid()) continue;
    if (std::time(nullptr) - status.st_mtime > kSeconds) found.insert(entry.path());
  }
  return found;
}

// Removes from the set the files that a process has mapped.
void keep_unmapped(std::set<std::string>& segments) {
  std::error_code error;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", error)) {
    if (segments.empty()) return;
    std::ifstream maps(process.path() / "maps");
    for (std::string line; std::getline(maps, line);) {
      const size_t path = line.find('/');
      if (path != std::string::npos) segments.erase(line.substr(path));
    }
  }
}

}  // namespace

void prepare_mpi_environment() {
  find_plugins_in_own_folder();
  if (!may_read_memory()) setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
}

void prepare_mpi_segments() {
  if (number_in("OMPI_COMM_WORLD_LOCAL_RANK") != 0) return;
  std::set<std::string> left = old_segments();
  if (!left.empty()) keep_unmapped(left);
  for (const std::string& path : left) ::unlink(path.c_str());
  if (number_in("OMPI_COMM_WORLD_LOCAL_SIZE") > 1)
    warn_of_little_room(number_in("OMPI_COMM_WORLD_LOCAL_SIZE"));
}

}  // namespace lockstep::launcher
