#include "runtime/base/stop_signals.h"

#include <signal.h>

namespace lockstep {
namespace {

sigset_t read_ignored() {
  sigset_t ignored;
  sigemptyset(&ignored);
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN)
      sigaddset(&ignored, number);
  }
  return ignored;
}

// Read before main(), when the program has not changed any action yet.
const sigset_t at_start = read_ignored();

}  // namespace

bool ignored_at_start(int number) { return sigismember(&at_start, number) == 1; }

std::vector<int> stop_signals() {
  std::vector<int> numbers = {SIGUSR1};
  for (const int number : {SIGTERM, SIGINT, SIGHUP})
    if (!ignored_at_start(number)) numbers.push_back(number);
  return numbers;
}

void restore_signals() {
  for (int number = 1; number < NSIG; ++number) {
    // A process that ignores SIGCHLD cannot learn how a child has ended.
    const bool ignored = number != SIGCHLD && ignored_at_start(number);
    ::signal(number, ignored ? SIG_IGN : SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace lockstep
