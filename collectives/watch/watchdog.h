#pragma once
// A thread that notices a rank that makes no progress: stopped, in an endless loop, or waiting for
// something that will not come. It reads the flight recorders of the ranks on its host; the states
// of ranks on other hosts arrive over links.

#include <filesystem>
#include <memory>
#include <vector>

#include "collectives/watch/host_links.h"
#include "collectives/watch/rank_locations.h"

namespace lockstep::collectives {

struct WatchdogOptions {
  std::filesystem::path folder;         // folder of the flight recorders
  int rank = 0;                         // this one's number
  std::vector<RankLocation> locations;  // of all ranks
  double timeout_s = 60;                // limit without any sign of work
  double files_timeout_s = 600;         // the same, while a rank opens, reads or writes files
};

// Watches from construction to destruction. If a rank is gone or makes no progress within its
// limit, all ranks that wait get a watchdog error (watchdog_error.h) that names it and its last
// operation. The same happens if all ranks wait for different operations. A finding of one watchdog
// reaches all others. The rank that hangs prints the stack of its main thread, and exits with code
// 6 if nothing else has ended it. Construct it on the main thread.
class Watchdog {
 public:
  explicit Watchdog(WatchdogOptions options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Watches the ranks of other hosts too, from now on. `links` come from link_hosts().
  void listen_to(std::vector<std::unique_ptr<HostLink>> links);

 private:
  class Watch;
  std::unique_ptr<Watch> watch_;
};

}  // namespace lockstep::collectives
