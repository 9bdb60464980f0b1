#include "runtime/base/ending_process.h"

#include <signal.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <system_error>

#include "runtime/base/text.h"

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
  constexpr size_t kFlags = 6;      // field 9 of the line
  constexpr uint64_t kExiting = 4;  // PF_EXITING of the kernel
  const std::vector<std::string> fields = stat_fields(thread);
  return fields.size() > kFlags && (parse_as<uint64_t>(fields[kFlags]).value_or(0) & kExiting) != 0;
}

}  // namespace

// The second field is the program's name in parentheses, which may contain any character.
std::vector<std::string> stat_fields(const fs::path& folder) {
  std::ifstream file(folder / "stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  return name_end == std::string::npos ? std::vector<std::string>()
                                       : words_of(line.substr(name_end + 1));
}

bool is_ending(pid_t process, const fs::path& proc) {
  std::error_code error;
  fs::directory_iterator thread(proc / std::to_string(process) / "task", error), end;
  if (error || thread == end) return false;
  for (; !error && thread != end; thread.increment(error))
    if (!has_got_kill(thread->path()) && !is_ending_thread(thread->path())) return false;
  return !error;
}

}  // namespace lockstep
