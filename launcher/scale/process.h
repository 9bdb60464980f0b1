#pragma once
// Child processes, without a shell.

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::scale {

// How a child ended.
struct ProcessEnd {
  int exit_code = 0;  // 128 + its number after a signal, as a shell says it
  bool out_of_time = false;
};

// The file that `name` stands for on the PATH, or the name itself if it is a path; empty when there
// is none that can be run.
std::string find_program(const std::string& name);

// Starts `command` in `folder`, its words as they are, waits for its end and returns that. What it
// prints goes to `log`, its standard input is empty. After `limit_s` seconds it is ended. SIGINT,
// SIGTERM or SIGHUP meanwhile ends it with all that it started, and then this process. Throws
// IoError.
ProcessEnd run_process(const std::vector<std::string>& command,
                       const std::filesystem::path& log,
                       double limit_s,
                       const std::filesystem::path& folder = ".");

}  // namespace lockstep::scale
