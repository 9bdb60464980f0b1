#pragma once
// How training goes, for the person who started it.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/metrics/step_record.h"

namespace lockstep {

struct ProgressOptions {
  int fd = 2;               // where to print; not owned, and open until the queue has written
  int64_t start_step = 0;   // completed before this process began
  int64_t total_steps = 0;  // length of the run
  int64_t log_every = 0;    // steps from line to line where there is no terminal; 0: by time
};

// Shows how training goes. On a terminal one line is redrawn at most ten times a second. Elsewhere
// (and on TERM=dumb) lines are printed: by time, for the first step, twice a second at the start and
// less and less often, down to one in ten seconds, for checkpoints and for the last step; or, where
// log_every is given, every so many steps. For evaluations always. Costs less than 100 ns when it
// prints nothing. It prints through the queue of the standard error stream, so that training goes on
// whether somebody watches or not. Not thread-safe.
class Progress {
 public:
  explicit Progress(const ProgressOptions& options);
  ~Progress();  // finish()
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `checkpoint`: one is about to be written.
  void update(const StepRecord& record, bool checkpoint = false);
  // Erases the line, so that other output starts clean; the next update draws it again.
  void clear();
  // Draws or, by time, prints the last step if that was not done, and ends the line.
  void finish();

 private:
  void draw(const StepRecord& record, double now);
  void print(std::string text) const;
  bool line_is_due(const StepRecord& record, double now) const;
  void print_line(const StepRecord& record, double now, bool checkpoint);
  void update_speed(int64_t step, double now);
  void count_slowest(const StepRecord& record);
  std::string slowest_text() const;

  ProgressOptions options_;
  bool terminal_ = false;
  bool line_open_ = false;
  bool finished_ = false;
  bool last_drawn_ = true;
  double start_ms_;
  double next_draw_ms_ = 0;    // or line, by time
  double speed_ms_ = 0;        // smoothed wall milliseconds a step; 0: not known yet
  double speed_since_ms_ = 0;  // when the current measurement began, and at which step
  int64_t speed_since_step_ = 0;
  StepRecord last_;
  // Since the last line: milliseconds of steps, and each slow rank with those by which it worked
  // longer; the first few to be slow.
  double line_ms_ = 0;
  std::vector<SlowestRank> slowest_;
};

// The line of `columns` characters at most, for a terminal; eta_ms < 0: unknown. Fields are left
// out, least important first, where there is no room.
std::string format_progress(const StepRecord& record,
                            int64_t total_steps,
                            double eta_ms,
                            int columns);

// "1:02:03", "4:05".
std::string format_duration(double milliseconds);

}  // namespace lockstep
