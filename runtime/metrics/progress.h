#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/metrics/step_record.h"

namespace lockstep {

struct ProgressOptions {
  int fd = 2;               // where to print; not owned
  int64_t start_step = 0;   // completed before this process began
  int64_t total_steps = 0;  // length of the run
  int64_t log_every = 10;   // >= 1; lines on something that is not a terminal
};

// Shows how training goes. On a terminal one line is redrawn at most ten times a second; elsewhere
// (and on TERM=dumb) a line is printed every log_every steps and for each evaluation. Costs less
// than 100 ns when it prints nothing. Errors of the descriptor are ignored: training does not end
// because nobody watches. Not thread-safe.
class Progress {
 public:
  explicit Progress(const ProgressOptions& options);
  ~Progress();  // finish()
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const StepRecord& record);
  // Erases the line, so that other output starts clean; the next update draws it again.
  void clear();
  // Draws the last step once more and ends the line.
  void finish();

 private:
  void draw(const StepRecord& record, double now);
  void print_line(const StepRecord& record);
  void update_speed(int64_t step, double now);
  void count_slowest(const StepRecord& record);
  std::string slowest_text() const;

  ProgressOptions options_;
  bool terminal_ = false;
  bool line_open_ = false;
  bool finished_ = false;
  bool last_drawn_ = true;
  double next_draw_ms_ = 0;
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
