#pragma once
// Signals that end a run with a checkpoint.

namespace lockstep {

// From now on SIGUSR1, SIGTERM and SIGINT ask the run to save a checkpoint and stop instead of
// ending the process. A second SIGTERM or SIGINT ends it at once.
void install_stop_signals();

// Whether one has come.
bool stop_requested();

}  // namespace lockstep
