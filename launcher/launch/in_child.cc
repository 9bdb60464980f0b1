#include "launcher/launch/in_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/launch/child.h"
#include "runtime/base/error.h"
#include "runtime/base/time.h"

namespace lockstep::launch {
namespace {

// "0" and the text, or the code of an error and its words.
[[noreturn]] void answer(const std::function<std::string()>& work, int descriptor) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string text;
  try {
    text = "0" + work();
  } catch (const Error& error) {
    text = std::to_string(static_cast<int>(error.code())) + error.what();
  } catch (...) {
  }
  [[maybe_unused]] const ssize_t wrote = ::write(descriptor, text.data(), text.size());
  _exit(0);
}

std::string checked(std::string text) {
  if (text.empty()) throw CheckpointError("a child process of launch has ended early");
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
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw IoError("make", "a pipe", errno);
  Pipe output(ends[0]), input(ends[1]);
  const pid_t child = fork();
  if (child < 0) throw IoError("start", "a child process", errno);
  if (child == 0) answer(work, input.descriptor());
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
    waitpid(child, nullptr, WNOHANG);
    return std::nullopt;
  }
  waitpid(child, nullptr, 0);
  return checked(std::move(text));
}

}  // namespace lockstep::launch
