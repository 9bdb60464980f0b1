#pragma once
// Runs child processes, without a shell.

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace lockstep::launcher {

// A signal asked this process to end while a child was running. The last handler of this error
// raises the signal again, which then has its previous action.
class Interrupted : public Error {
 public:
  explicit Interrupted(int signal);
  int signal() const { return signal_; }

 private:
  int signal_;
};

// How a child ended.
struct ProcessEnd {
  int exit_code = 0;  // 128 + the signal's number after a signal, as in a shell
  bool out_of_time = false;
};

// The file that `name` denotes in PATH, or `name` itself if it is a path; empty if there is no
// executable file.
std::string find_program(const std::string& name);

// Starts `command` in `folder`, waits for its end and returns how it ended. Its arguments are
// passed unchanged, its output goes to `log`, its standard input is empty. After `limit_s` seconds
// it is ended. A signal of stop_signals() ends it with all its children; then throws Interrupted.
// Throws IoError.
ProcessEnd run_process(const std::vector<std::string>& command,
                       const std::filesystem::path& log,
                       double limit_s,
                       const std::filesystem::path& folder = ".");

}  // namespace lockstep::launcher
