#include "launcher/run/watch_run.h"

#include "collectives/agree/agreement.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/train/folder/run_generation.h"

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

// Returns whether this rank records its operations.
bool record(collectives::Communicator& communicator, const fs::path& folder) {
  try {
    train::check_generation(folder.parent_path());
    std::error_code ignored;  // this host may not see rank 0's folder
    fs::create_directories(folder, ignored);
    FlightRecorder::here().open(folder, communicator.rank(), communicator.size());
    return true;
  } catch (const IoError& error) {
    log_warn("this rank is not recorded, and no watchdog watches the ranks: {}", error.what());
    return false;
  }
}

}  // namespace

// Whether the folders still belong to this start.
bool RunWatch::is_current() const {
  try {
    train::check_generation(folder_.parent_path());
    return true;
  } catch (const Error&) {
    return false;
  }
}

RunWatch::RunWatch(Session& session, const RunConfig& config, bool on_gpu)
    : communicator_(session.communicator()),
      folder_(fs::path(config.output.run_dir) / "flight"),
      before_(fs::path(config.output.run_dir) / "flight.before") {
  const bool watched = on_gpu || communicator_.size() > 1;
  std::vector<collectives::RankLocation> locations;
  if (watched) locations = collectives::gather_locations(communicator_);
  collectives::run_on_root(communicator_, [&] {
    train::check_generation(folder_.parent_path());
    std::error_code ignored;
    // An existing flight.before is of the last start that continued the run; later starts did not,
    // and their recorders are dropped.
    if (fs::exists(before_, ignored)) fs::remove_all(folder_, ignored);
    fs::rename(folder_, before_, ignored);
    fs::create_directories(folder_, ignored);
  });
  const bool recorded = record(communicator_, folder_);
  if (!watched) return;
  // From here on no rank waits for ever for a rank of the same host that hangs.
  if (recorded) {
    watchdog_ = std::make_unique<collectives::Watchdog>(collectives::WatchdogOptions{
        .folder = folder_,
        .rank = communicator_.rank(),
        .locations = locations,
        .timeout_s = seconds_or_never(config.comm.timeout_s),
        .files_timeout_s = seconds_or_never(config.comm.files_timeout_s)});
  }
  if (collectives::sum_over_ranks(communicator_, recorded ? 1 : 0) < communicator_.size()) {
    watchdog_.reset();
    return;
  }
  watchdog_->listen_to(collectives::link_hosts(communicator_, locations, session.networks()));
}

void RunWatch::start(const std::function<void()>& action) {
  std::error_code ignored;
  try {
    action();
  } catch (const collectives::AgreedError&) {
    if (communicator_.rank() == 0 && fs::exists(before_, ignored) && is_current()) {
      fs::remove_all(folder_, ignored);
      fs::rename(before_, folder_, ignored);
    }
    throw;
  }
  if (communicator_.rank() == 0 && is_current()) fs::remove_all(before_, ignored);
}

}  // namespace lockstep::launcher
