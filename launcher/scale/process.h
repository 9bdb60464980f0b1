#pragma once
// Child processes, without a shell.

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace lockstep::scale {

// A signal asked this process to end while a child ran. Who catches it last raises the signal,
// whose own effect is back.
class Interrupted : public Error {
 public:
  explicit Interrupted(int signal);
  int signal() const { return signal_; }

 private:
  int signal_;
};

// How a child ended.
struct ProcessEnd {
  int exit_code = 0;  // 128 + its number after a signal, as a shell says it
  bool out_of_time = false;
};

// The file that `name` stands for on the PATH, or the name itself if it is a path; empty when there
// is none that can be run.
std::string find_program(const std::string& name);

// Starts `command` in `folder`, its words as they are, waits for its end and returns that. What it
// prints goes to `log`, its standard input is empty. After `limit_s` seconds it is ended. A signal of
// stop_signals() meanwhile ends it with all that it started. Throws Interrupted then, and
// IoError.
ProcessEnd run_process(const std::vector<std::string>& command,
                       const std::filesystem::path& log,
                       double limit_s,
                       const std::filesystem::path& folder = ".");

}  // namespace lockstep::scale
