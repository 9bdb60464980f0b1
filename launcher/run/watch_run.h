#pragma once
// The flight recorders of a run and their watchdog.

#include <filesystem>
#include <functional>
#include <memory>

#include "collectives/watch/watchdog.h"
#include "launcher/ranks/session.h"
#include "runtime/config/run_config.h"

namespace lockstep::launcher {

// While it exists, the flight recorder writes to RUN_DIR/flight, and a watchdog on each host
// watches its ranks, if it can read their recorders. A single rank on a CPU has no watchdog: it
// waits for nobody.
class RunWatch {
 public:
  // Collective.
  RunWatch(Session& session, const RunConfig& config, bool on_gpu);

  // Runs `action`, which must succeed before the run can continue. If it throws AgreedError,
  // RUN_DIR/flight gets back the flight recorders of the previous start.
  void start(const std::function<void()>& action);

 private:
  bool is_current() const;

  collectives::Communicator& communicator_;
  std::filesystem::path folder_, before_;
  std::unique_ptr<collectives::Watchdog> watchdog_;
};

}  // namespace lockstep::launcher
