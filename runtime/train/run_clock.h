#pragma once
// When it is time for a checkpoint, and when a run must stop so that one is written before the time
// that it has is over. Of rank 0, whose clock counts for all ranks.

#include <functional>
#include <optional>

#include "runtime/config/run_config.h"

namespace lockstep {

struct RunClockOptions {
  double every_s = 0;            // between checkpoints; 0: none by time
  std::optional<double> end_ms;  // of the time that the run has, as now_ms() counts
  double margin_s = 0;           // to be kept free before that,
  double save_s = 0;             // beside what a save takes, as long as none has been measured
};

// As the config says, or, where that is earlier, SLURM_JOB_END_TIME (seconds since 1970) in the
// environment. `checkpoint_bytes`: of all files.
RunClockOptions run_clock_options(const RunConfig& config,
                                  double checkpoint_bytes,
                                  const std::function<const char*(const char*)>& environment);

class RunClock {
 public:
  explicit RunClock(const RunClockOptions& options);

  // To be asked once a step. Whether the next step may end, and a save after it, too late: with the
  // longest time from one look to the next so far, the longest save, and the margin. Says so once.
  bool must_stop();
  // Whether the last save began long enough ago.
  bool save_due() const;

  void save_begins();
  // A save took so long, from its begin until it was durable.
  void save_took(double seconds);

 private:
  RunClockOptions options_;
  double last_look_ms_, last_save_ms_;
  double longest_s_ = 0;  // between two looks
  bool save_measured_ = false, stopping_ = false;
};

}  // namespace lockstep
