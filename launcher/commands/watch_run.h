#pragma once
// The flight recorders of a run and who watches them.

#include <filesystem>
#include <functional>
#include <memory>

#include "collectives/watch/watchdog.h"
#include "launcher/ranks/session.h"
#include "runtime/config/run_config.h"

namespace lockstep {

// While it lives the flight recorder writes to RUN_DIR/flight, and a watchdog on each host sees to
// its ranks, where the recorders can be read there.
class RunWatch {
 public:
  // All ranks together.
  RunWatch(Session& session, const RunConfig& config);

  // Does what must be done before a run can go on. Where all ranks refuse that together
  // (AgreedError), the flight recorders of the start before are what RUN_DIR/flight has again.
  void start(const std::function<void()>& action);

 private:
  bool counts() const;

  Communicator& communicator_;
  std::filesystem::path folder_, before_;
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace lockstep
