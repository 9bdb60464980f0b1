#pragma once
// Runs work that may never return, as on a network file system whose server is gone: a process that
// waits for it can be neither interrupted nor killed.

#include <functional>
#include <optional>
#include <string>

#include "launcher/processes/stop_signals.h"

namespace lockstep::launcher {

// Runs `work` in a child process and returns its text. Returns nullopt, and abandons the child, if
// there is no result within `limit_s`, or within two seconds after a request to stop, or if no
// child can be started. An Error is rethrown with the same code. `work` must not log, as another
// thread may hold the log's lock at the fork.
std::optional<std::string> in_child(const std::function<std::string()>& work,
                                    double limit_s,
                                    const StopSignals& signals);

}  // namespace lockstep::launcher
