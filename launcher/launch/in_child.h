#pragma once
// Work that may not come back, as on a network file system whose server is gone: a process that waits
// for it can be neither interrupted nor killed.

#include <functional>
#include <optional>
#include <string>

#include "launcher/launch/stop_signals.h"

namespace lockstep::launch {

// The text that `work` returns, from a child process; nothing if there is none within the time, or
// within two seconds of a wish to stop, or no child can be started. Then the child is left to itself. Rethrows an Error as one
// of the same code. `work` must not log: another thread may hold the log at the fork.
std::optional<std::string> in_child(const std::function<std::string()>& work,
                                    double limit_s,
                                    const StopSignals& signals);

}  // namespace lockstep::launch
