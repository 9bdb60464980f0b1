#include "launcher/processes/in_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "launcher/processes/child.h"
#include "runtime/base/error.h"
#include "runtime/base/time.h"

namespace lockstep::launcher {
namespace {

// Children that did not end with their result. One that is stuck in the kernel may end much later.
std::vector<pid_t>& abandoned_children() {
  static std::vector<pid_t> children;
  return children;
}

void reap_abandoned_children() {
  std::erase_if(abandoned_children(),
                [](pid_t child) { return waitpid(child, nullptr, WNOHANG) != 0; });
}

// Writes "0" and the text, or an error's code and message. Closes all other descriptors of
// `launch`, such as the pipe of the reader of its output, as this child may never end.
[[noreturn]] void run_and_write(const std::function<std::string()>& work, int descriptor) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(descriptor, STDIN_FILENO);
  close_range(STDOUT_FILENO, ~0U, 0);
  std::string text;
  try {
    text = "0" + work();
  } catch (const Error& error) {
    text = std::to_string(static_cast<int>(error.code())) + error.what();
  } catch (...) {
  }
  [[maybe_unused]] const ssize_t wrote = ::write(STDIN_FILENO, text.data(), text.size());
  _exit(0);
}

std::string parse_result(std::string text) {
  size_t digits = 1;
  if (text[0] != '0') digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const int code = std::stoi(text.substr(0, digits));
  text.erase(0, digits);
  if (code != 0) throw Error(static_cast<ExitCode>(code), text);
  return text;
}

}  // namespace

std::optional<std::string> in_child(const std::function<std::string()>& work,
                                    double limit_s,
                                    const StopSignals& signals) {
  constexpr double kStoppedMs = 2000;
  std::array<int, 2> ends{};
  reap_abandoned_children();
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  Pipe output(ends[0]), input(ends[1]);
  const pid_t child = fork();
  if (child < 0) return std::nullopt;
  if (child == 0) run_and_write(work, input.descriptor());
  input.close();
  std::string text;
  double end_ms = now_ms() + limit_s * 1000;
  bool stopped = signals.stop_requested();
  while (output.is_open() && now_ms() < end_ms) {
    constexpr int kPollMs = 50;
    pollfd entry{output.descriptor(), POLLIN, 0};
    if (poll(&entry, 1, kPollMs) > 0) text += output.read();
    if (!stopped && signals.stop_requested()) end_ms = std::min(end_ms, now_ms() + kStoppedMs);
    stopped = signals.stop_requested();
  }
  if (output.is_open()) {
    kill(child, SIGKILL);
    abandoned_children().push_back(child);
    return std::nullopt;
  }
  waitpid(child, nullptr, 0);
  if (text.empty()) return std::nullopt;  // it was killed
  return parse_result(std::move(text));
}

}  // namespace lockstep::launcher
