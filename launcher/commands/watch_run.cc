#include "launcher/commands/watch_run.h"

#include <limits>

#include "collectives/agreement.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/host.h"
#include "runtime/base/log.h"

namespace lockstep {
namespace {

double limit_of(double seconds) {
  return seconds > 0 ? seconds : std::numeric_limits<double>::infinity();
}

}  // namespace

std::unique_ptr<Watchdog> watch_run(Session& session, const RunConfig& config) {
  Communicator& communicator = session.communicator();
  const std::filesystem::path folder = std::filesystem::path(config.output.run_dir) / "flight";
  run_on_root(communicator, [&] {
    std::error_code ignored;  // of an earlier start, perhaps with more ranks
    std::filesystem::remove_all(folder, ignored);
    std::filesystem::create_directories(folder, ignored);
  });
  bool recorded = true;
  try {
    std::error_code ignored;  // on a host that does not see rank 0's
    std::filesystem::create_directories(folder, ignored);
    FlightRecorder::here().open(folder, communicator.rank(), communicator.size());
  } catch (const IoError& error) {
    log_warn("what this rank does is not recorded, and nobody watches it: {}", error.what());
    recorded = false;
  }
  const std::vector<std::string> hosts = gather_texts(communicator, host_identity());
  WatchdogOptions options = {.folder = folder,
                             .rank = communicator.rank(),
                             .ranks = communicator.size(),
                             .links = link_hosts(communicator, hosts, session.networks()),
                             .timeout_s = limit_of(config.comm.timeout_s),
                             .files_timeout_s = limit_of(config.comm.files_timeout_s)};
  for (int rank = 0; rank < communicator.size(); ++rank)
    if (hosts[static_cast<size_t>(rank)] == hosts[static_cast<size_t>(options.rank)])
      options.ranks_here.push_back(rank);
  if (!recorded || communicator.size() == 1) return nullptr;
  return std::make_unique<Watchdog>(std::move(options));
}

}  // namespace lockstep
