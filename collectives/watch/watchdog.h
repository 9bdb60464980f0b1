#pragma once
// A thread that sees to it that no rank stands still unnoticed: stopped, in an endless loop, or
// waiting for what will not come. It reads the flight recorders of its host's ranks; those of other
// hosts are told over links.

#include <filesystem>
#include <memory>
#include <vector>

#include "collectives/watch/host_links.h"
#include "collectives/watch/rank_places.h"

namespace lockstep {

struct WatchdogOptions {
  std::filesystem::path folder;   // where the recorders write
  int rank = 0;                   // this one's number
  std::vector<RankPlace> places;  // of all ranks
  double timeout_s = 60;          // without any sign of work
  double files_timeout_s = 600;   // the same, while a rank opens, reads or writes files
};

// Watches from its making to its end. Where a rank is gone, or does nothing for the time that it
// may, the ranks that wait get a verdict (verdict.h) which names it and what it did last; so they do
// where all of them wait, and for different things. What one watchdog finds all are told. A rank
// that is stuck itself prints where its main thread is, and ends with exit code 6 where nobody else
// has ended it. Make it on the main thread.
class Watchdog {
 public:
  explicit Watchdog(WatchdogOptions options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From now on the ranks of other hosts are watched too. links: of link_hosts().
  void listen_to(std::vector<std::unique_ptr<HostLink>> links);

 private:
  class Watch;
  std::unique_ptr<Watch> watch_;
};

}  // namespace lockstep
