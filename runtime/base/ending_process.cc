#include "runtime/base/ending_process.h"

#include <signal.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool has_got_kill(const fs::path& thread) {
  std::ifstream file(thread / "status");
  uint64_t pending = 0;
  for (std::string name; file >> name;) {
    if (name == "SigPnd:" && file >> std::hex >> pending) break;
    std::getline(file, name);
  }
  return (pending & (uint64_t{1} << (SIGKILL - 1))) != 0;
}

bool is_ending_thread(const fs::path& thread) {
  constexpr unsigned kExiting = 4;  // PF_EXITING of the kernel
  std::ifstream file(thread / "stat");
  std::string line, state;
  std::getline(file, line);
  // The fields after the name, which is in parentheses and may have spaces.
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  long skipped = 0;
  unsigned flags = 0;
  fields >> state;
  for (int i = 0; i < 5; ++i) fields >> skipped;
  return fields >> flags && (flags & kExiting) != 0;
}

}  // namespace

bool is_ending(pid_t process, const fs::path& proc) {
  std::error_code error;
  fs::directory_iterator thread(proc / std::to_string(process) / "task", error), end;
  if (error || thread == end) return false;
  for (; !error && thread != end; thread.increment(error))
    if (!has_got_kill(thread->path()) && !is_ending_thread(thread->path())) return false;
  return !error;
}

}  // namespace lockstep
