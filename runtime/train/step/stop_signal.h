#pragma once
// Signals that end a run with a checkpoint.

namespace lockstep {

// From now on the signals of stop_signals() (SIGUSR1, SIGTERM, SIGINT, SIGHUP) ask the run to save a
// checkpoint and stop instead of ending the process. A second SIGTERM, SIGINT or SIGHUP ends it at
// once. SIGPIPE is ignored: a run goes on if nobody reads what it prints.
void install_stop_signals();

// Whether one has come.
bool stop_requested();

}  // namespace lockstep
