#pragma once
// Signals that end a run with a checkpoint.

namespace lockstep::train {

// From now on, the signals of stop_signals() (SIGUSR1, SIGTERM, SIGINT, SIGHUP) make the run save a
// checkpoint and stop, instead of ending the process. A second SIGTERM, SIGINT or SIGHUP ends it at
// once. SIGPIPE is ignored: a run continues if nobody reads its output.
void install_stop_signals();

// Whether such a signal has arrived.
bool stop_requested();

}  // namespace lockstep::train
