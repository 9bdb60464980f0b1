#pragma once
// The flight recorders of a run and who watches them.

#include <memory>

#include "collectives/watch/watchdog.h"
#include "launcher/ranks/session.h"
#include "runtime/config/run_config.h"

namespace lockstep {

// From now on the flight recorder writes to RUN_DIR/flight, which is made anew, and a watchdog sees
// to the ranks of this host; null where the config wants none or the recorders cannot be read here.
// All ranks together.
std::unique_ptr<Watchdog> watch_run(Session& session, const RunConfig& config);

}  // namespace lockstep
