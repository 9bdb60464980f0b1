#pragma once
// Decides when a checkpoint is due, and when a run must stop so that its last checkpoint is written
// before its time limit. Only rank 0's clock counts.

#include <functional>
#include <optional>

#include "runtime/config/run_config.h"

namespace lockstep::checkpoint {

struct RunClockOptions {
  double every_s = 0;            // between checkpoints; 0: none by time
  std::optional<double> end_ms;  // the time limit, as now_ms() counts
  double margin_s = 0;           // kept free before the limit
  double save_s = 0;             // assumed time of a save, until one is measured
};

// The time limit is that of the config or, if that is earlier, SLURM_JOB_END_TIME (seconds since
// 1970) in the environment. `checkpoint_bytes`: of all files of a checkpoint.
RunClockOptions run_clock_options(const RunConfig& config,
                                  double checkpoint_bytes,
                                  const std::function<const char*(const char*)>& environment);

class RunClock {
 public:
  explicit RunClock(const RunClockOptions& options);

  // Call once per step. Whether the next step and a save after it may end too late, given the
  // longest time between two calls so far, the longest save, and the margin. Logs the reason once.
  bool must_stop();
  // Whether the last save began long enough ago.
  bool save_due() const;

  void save_begins();
  // A save took this long, from its beginning until it was durable.
  void save_took(double seconds);

 private:
  RunClockOptions options_;
  double last_check_ms_, last_save_ms_;
  double longest_s_ = 0;  // between two calls of must_stop()
  bool save_measured_ = false, stopping_ = false;
};

}  // namespace lockstep::checkpoint
