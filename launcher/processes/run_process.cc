#include "launcher/processes/run_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <utility>

#include "launcher/processes/child.h"
#include "runtime/base/stop_signals.h"
#include "runtime/base/time.h"

namespace lockstep::launcher {
namespace {

constexpr double kGraceMs = 10000;  // between asking a child to end and killing it
constexpr std::chrono::milliseconds kPoll{20};

volatile sig_atomic_t g_signal = 0;

void on_signal(int number) { g_signal = number; }

// Records the stop signals while it exists.
class NotedSignals {
 public:
  NotedSignals() {
    g_signal = 0;
    for (const int number : stop_signals()) {
      struct sigaction action {};
      action.sa_handler = on_signal;
      sigaction(number, &action, &before_.emplace_back(number, action).second);
    }
  }
  NotedSignals(const NotedSignals&) = delete;
  NotedSignals& operator=(const NotedSignals&) = delete;
  ~NotedSignals() {
    for (const auto& [number, action] : before_) sigaction(number, &action, nullptr);
  }

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

bool may_run(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

// Waits for the rest of a group that was asked to end, and kills it after a while.
void end_group(pid_t group, double asked_ms) {
  while (kill(-group, 0) == 0 && now_ms() - asked_ms < kGraceMs) std::this_thread::sleep_for(kPoll);
  kill(-group, SIGKILL);
}

// Waits for the end of the child that leads a group. Sets `out_of_time` if it was ended at the
// limit.
int wait_for(pid_t child, double limit_s, bool& out_of_time) {
  const double deadline_ms = now_ms() + limit_s * 1000;
  double asked_ms = 0;
  for (int status = 0;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child && asked_ms > 0) end_group(child, asked_ms);
    if (ended == child) return code_of(status);
    if (ended < 0 && errno != EINTR) throw IoError("wait for", "a child process", errno);
    if (asked_ms > 0) {
      if (now_ms() - asked_ms > kGraceMs) kill(-child, SIGKILL);
    } else if (g_signal != 0 || now_ms() > deadline_ms) {
      out_of_time = g_signal == 0;
      asked_ms = now_ms();
      kill(-child, SIGTERM);
    }
    std::this_thread::sleep_for(kPoll);
  }
}

const char* name_of(int signal) {
  switch (signal) {
    case SIGINT: return "SIGINT";
    case SIGTERM: return "SIGTERM";
    case SIGUSR1: return "SIGUSR1";
    default: return "SIGHUP";
  }
}

}  // namespace

Interrupted::Interrupted(int signal)
    : Error(ExitCode::kPeer, fmt::format("interrupted by {}", name_of(signal))), signal_(signal) {}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return may_run(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::filesystem::path file = std::filesystem::path(folder) / name;
    if (may_run(file)) return file.string();
  }
  return "";
}

ProcessEnd run_process(const std::vector<std::string>& command,
                       const std::filesystem::path& log,
                       double limit_s,
                       const std::filesystem::path& folder) {
  ProcessEnd end;
  {
    const NotedSignals noted;
    const Child child =
        start_child({.words = command, .log = log, .folder = folder, .last_signal = SIGTERM});
    end.exit_code = wait_for(child.process, limit_s, end.out_of_time);
  }
  if (g_signal != 0) throw Interrupted(g_signal);
  return end;
}

}  // namespace lockstep::launcher
