#include "launcher/processes/stop_signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/stop_signals.h"
#include "runtime/base/streams.h"
#include "runtime/base/time.h"

namespace lockstep::launcher {
namespace {

sigset_t signal_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : stop_signals()) sigaddset(&set, number);
  return set;
}

int open_signals() {
  const sigset_t set = signal_set();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

constexpr double kPatienceMs = 700;  // from a request to kill to the end of the process

void raise(const Descriptor& event) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t wrote = ::write(event.fd, &one, sizeof(one));
}

// Waits neither for output nor for another thread.
[[noreturn]] void end_process() {
  constexpr std::string_view kText =
      "launch: ends at once after a second interrupt, without waiting for its processes\n";
  pollfd out{STDERR_FILENO, POLLOUT, 0};
  if (poll(&out, 1, 0) > 0 && (out.revents & POLLOUT) != 0) {
    [[maybe_unused]] const ssize_t wrote = ::write(STDERR_FILENO, kText.data(), kText.size());
  }
  _exit(static_cast<int>(ExitCode::kPeer));
}

}  // namespace

StopSignals::StopSignals()
    : signals_(open_signals()),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      end_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (signals_.fd < 0 || event_.fd < 0 || end_.fd < 0)
    throw IoError("open", "a descriptor of signals", errno);
  thread_ = std::thread([this] { listen(); });
}

StopSignals::~StopSignals() {
  raise(end_);
  thread_.join();
  const sigset_t set = signal_set();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

void StopSignals::listen() {
  pollfd entries[] = {{signals_.fd, POLLIN, 0}, {end_.fd, POLLIN, 0}};
  while (entries[1].revents == 0) {
    if (killed_ms_ > 0 && now_ms() - killed_ms_ > kPatienceMs) end_process();
    constexpr int kPollMs = 50;
    poll(entries, std::size(entries), killed_ms_ > 0 ? kPollMs : -1);
    signalfd_siginfo signal{};
    while (::read(signals_.fd, &signal, sizeof(signal)) == sizeof(signal))
      handle(static_cast<int>(signal.ssi_signo));
  }
}

void StopSignals::handle(int number) {
  const bool kill = number == SIGINT && interrupted_;
  interrupted_ = interrupted_ || number == SIGINT;
  {
    const std::lock_guard lock(mutex_);
    if (!stop_) request_ = Request::kStop;
    if (kill) request_ = Request::kKill;
  }
  stop_ = true;
  if (kill) hurry_streams();
  if (kill && killed_ms_ == 0) killed_ms_ = now_ms();
  raise(event_);
}

StopSignals::Request StopSignals::read() {
  uint64_t ignored = 0;
  while (::read(event_.fd, &ignored, sizeof(ignored)) > 0) {
  }
  const std::lock_guard lock(mutex_);
  return std::exchange(request_, Request::kNone);
}

void StopSignals::wait(double seconds) {
  const double end_ms = now_ms() + seconds * 1000;
  for (double left_ms = seconds * 1000; left_ms > 0 && !stop_; left_ms = end_ms - now_ms()) {
    pollfd entry{event_.fd, POLLIN, 0};
    poll(&entry, 1, static_cast<int>(std::max(1.0, left_ms)));
    read();
  }
}

}  // namespace lockstep::launcher
