#include "runtime/train/step/stop_signal.h"

#include <signal.h>

#include "runtime/base/stop_signals.h"

namespace lockstep::train {
namespace {

volatile sig_atomic_t g_stop_requested = 0;

void on_signal(int) { g_stop_requested = 1; }

}  // namespace

void install_stop_signals() {
  signal(SIGPIPE, SIG_IGN);
  for (const int number : stop_signals()) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART | (number == SIGUSR1 ? 0 : static_cast<int>(SA_RESETHAND));
    sigaction(number, &action, nullptr);
  }
}

bool stop_requested() { return g_stop_requested != 0; }

}  // namespace lockstep::train
