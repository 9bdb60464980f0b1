#pragma once
// The signals by which somebody asks a program to stop, and those that it was told to ignore.

#include <vector>

namespace lockstep {

// Whether the signal was ignored when this process started, whatever it has set since: nohup ignores
// SIGHUP, a shell SIGINT and SIGQUIT for the background jobs of a script.
bool ignored_at_start(int number);

// SIGUSR1, SIGTERM, SIGINT and SIGHUP. Those that were ignored at the start stay so and are not among
// them, except for SIGUSR1: it is the one by which `launch` and job schedulers ask for a checkpoint.
std::vector<int> stop_signals();

// Gives all signals the actions that a shell would leave to a program: the default, or ignored as at
// the start. Blocks none. For a child process before its exec; safe there.
void restore_signals();

}  // namespace lockstep
