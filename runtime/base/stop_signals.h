#pragma once
// The signals that ask a program to stop, and which signals it was started to ignore.

#include <vector>

namespace lockstep {

// Whether the signal was ignored when this process started, whatever was set since. nohup ignores
// SIGHUP; a shell ignores SIGINT and SIGQUIT for the background jobs of a script.
bool ignored_at_start(int number);

// SIGUSR1, SIGTERM, SIGINT and SIGHUP, without those that were ignored at the start. SIGUSR1 is
// always among them, because `launch` and job schedulers use it to ask for a checkpoint.
std::vector<int> stop_signals();

// Resets every signal's action to what a shell would give a program: the default, or ignored as at
// the start. Unblocks all signals. Made for a child process between fork() and exec(), and safe
// there.
void restore_signals();

}  // namespace lockstep
