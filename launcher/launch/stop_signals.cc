#include "launcher/launch/stop_signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "runtime/base/error.h"
#include "runtime/base/time.h"

namespace lockstep::launch {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGUSR1, SIGTERM, SIGINT}) sigaddset(&set, number);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

int open_signals() {
  const sigset_t set = stop_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

}  // namespace

StopSignals::StopSignals() : descriptor_(open_signals()) {
  if (descriptor_.fd < 0) throw IoError("open", "a descriptor of signals", errno);
}

StopSignals::~StopSignals() {
  const sigset_t set = stop_signals();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

StopSignals::Wish StopSignals::read() {
  Wish wish = Wish::kNone;
  signalfd_siginfo signal{};
  while (::read(descriptor_.fd, &signal, sizeof(signal)) == sizeof(signal)) {
    const bool interrupt = signal.ssi_signo == SIGINT;
    if (!stop_)
      wish = Wish::kStop;
    else if (interrupt && interrupted_)
      wish = Wish::kKill;
    stop_ = true;
    interrupted_ = interrupted_ || interrupt;
  }
  return wish;
}

void StopSignals::wait(double seconds) {
  const double end_ms = now_ms() + seconds * 1000;
  for (double left_ms = seconds * 1000; left_ms > 0 && !stop_; left_ms = end_ms - now_ms()) {
    pollfd entry{descriptor_.fd, POLLIN, 0};
    poll(&entry, 1, static_cast<int>(std::max(1.0, left_ms)));
    read();
  }
}

}  // namespace lockstep::launch
