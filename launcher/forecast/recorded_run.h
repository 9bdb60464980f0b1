#pragma once
// A run that `train` has recorded with output.timeline, for `lockstep plan --replay`.

#include <string>

#include "launcher/forecast/planned_run.h"
#include "launcher/forecast/replay.h"

namespace lockstep::launcher {

struct RecordedRun {
  std::string timeline, config;  // paths
  PlanRequest request;           // the run, planned where it ran
  PlanPlace place;
  PlannedRun planned;
  forecast::TimedRun timed;  // borrows from the others

  RecordedRun() = default;
  RecordedRun(const RecordedRun&) = delete;
  RecordedRun& operator=(const RecordedRun&) = delete;
};

// The run whose timeline is at `path`, a file in its run folder or that folder. `from`: the
// hardware on which it ran, a name or a file; if empty, that of the run's forecast or its GPU.
// Throws CheckpointError if the folder lacks a file or one is damaged, and ConfigError.
std::unique_ptr<RecordedRun> read_recorded_run(const std::string& path, const std::string& from);

// Replaces the forecast of `planned` by one from the run's measured times. Throws ConfigError.
forecast::Replay replay_forecast(const RecordedRun& run,
                                 const forecast::RunTerms& terms,
                                 PlannedRun& planned);

}  // namespace lockstep::launcher
