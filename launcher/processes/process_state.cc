#include "launcher/processes/process_state.h"

#include <fmt/core.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include "runtime/base/control_group.h"
#include "runtime/base/ending_process.h"
#include "runtime/base/text.h"

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

char state_of(const fs::path& folder) {
  const std::vector<std::string> fields = stat_fields(folder);
  return fields.empty() ? '?' : fields[0][0];
}

const char* name_of(char state) {
  switch (state) {
    case 'R': return "running";
    case 'S': return "sleeping";
    case 'D': return "uninterruptible sleep";
    case 'T': return "stopped";
    case 't': return "stopped by a debugger";
    case 'Z': return "ended, but not all of its threads have";
    case 'X': return "dead";
    default: return "unknown";
  }
}

std::string first_word(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// The folder of the thread that blocks the process: one in state D, otherwise the first.
fs::path blocking_thread(const fs::path& process) {
  std::error_code code;
  fs::directory_iterator threads(process / "task", code);
  for (; !code && threads != fs::directory_iterator(); threads.increment(code))
    if (state_of(threads->path()) == 'D') return threads->path();
  return process;
}

// The innermost control group that has frozen the process; empty if there is none.
std::string freezing_group(pid_t process, const fs::path& root) {
  std::string frozen;
  for (const ControlGroup& group : control_groups("freezer", root, std::to_string(process))) {
    if (group.version == 1) {
      const std::string state = first_word(group.folder / "freezer.state");
      if (state != "FROZEN" && state != "FREEZING") continue;
      frozen = group.folder.string();
      if (first_word(group.folder / "freezer.self_freezing") == "1") return frozen;
    } else if (first_word(group.folder / "cgroup.freeze") == "1") {
      return group.folder.string();
    }
  }
  return frozen;
}

}  // namespace

GivenUp given_up_now(pid_t process, const fs::path& proc) {
  constexpr size_t kStartTime = 19;  // field 22 of the line
  const std::vector<std::string> fields = stat_fields(proc / std::to_string(process));
  if (fields.size() <= kStartTime) return {process, 0};
  return {process, std::strtoull(fields[kStartTime].c_str(), nullptr, 10)};
}

bool is_there(const GivenUp& process, const fs::path& proc) {
  if (process.start_ticks == 0 || given_up_now(process.process, proc) != process) return false;
  const fs::path folder = proc / std::to_string(process.process);
  return state_of(folder) != 'Z' || blocking_thread(folder) != folder;
}

std::optional<uint64_t> ticks_if_blocked(pid_t process, const fs::path& proc) {
  constexpr size_t kUserTime = 11, kSystemTime = 12;  // fields 14 and 15 of the line
  const fs::path folder = proc / std::to_string(process);
  if (state_of(blocking_thread(folder)) != 'D') return std::nullopt;
  const std::vector<std::string> fields = stat_fields(folder);
  if (fields.size() <= kSystemTime) return std::nullopt;
  return std::strtoull(fields[kUserTime].c_str(), nullptr, 10) +
         std::strtoull(fields[kSystemTime].c_str(), nullptr, 10);
}

std::string state_text(pid_t process, const fs::path& root) {
  const fs::path thread = blocking_thread(root / "proc" / std::to_string(process));
  const char state = state_of(thread);
  std::string text = fmt::format("state {} ({})", state, name_of(state));
  const std::string group = freezing_group(process, root);
  if (!group.empty()) return text + ", frozen by the control group " + escape_controls(group);
  const std::string channel = first_word(thread / "wchan");
  if (!channel.empty() && channel != "0") text += ", waiting in " + escape_controls(channel);
  return text;
}

std::string to_text(const std::vector<GivenUp>& processes) {
  std::string text;
  for (const GivenUp& process : processes)
    append_item(text, fmt::format("{}:{}", process.process, process.start_ticks), ",");
  return text;
}

std::vector<GivenUp> given_up_from(const std::string& text) {
  std::vector<GivenUp> processes;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    GivenUp process;
    char colon = 0;
    if (std::istringstream(word) >> process.process >> colon >> process.start_ticks && colon == ':')
      processes.push_back(process);
  }
  return processes;
}

}  // namespace lockstep::launcher
