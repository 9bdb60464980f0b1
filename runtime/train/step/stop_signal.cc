#include "runtime/train/step/stop_signal.h"

#include <signal.h>

#include <initializer_list>

namespace lockstep {
namespace {

volatile sig_atomic_t g_stop_requested = 0;

void on_signal(int) { g_stop_requested = 1; }

}  // namespace

void install_stop_signals() {
  signal(SIGPIPE, SIG_IGN);
  for (int number : {SIGUSR1, SIGTERM, SIGINT, SIGHUP}) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    if (number == SIGHUP && action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART | (number == SIGUSR1 ? 0 : static_cast<int>(SA_RESETHAND));
    sigaction(number, &action, nullptr);
  }
}

bool stop_requested() { return g_stop_requested != 0; }

}  // namespace lockstep
