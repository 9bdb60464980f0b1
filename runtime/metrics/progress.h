#pragma once
// Prints the progress of training.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/metrics/step_record.h"

namespace lockstep::metrics {

// The columns of the terminal that `fd` is; 0 if it is none that can redraw a line (TERM=dumb).
int terminal_columns(int fd);

// `launch` sets this variable for rank 0 if it shows the progress on a terminal: to its columns.
inline constexpr const char* kProgressColumnsVariable = "LOCKSTEP_PROGRESS_COLUMNS";

struct ProgressOptions {
  int fd = 2;               // where to print; not owned; must stay open until the queue has written
  int64_t start_step = 0;   // completed before this process began
  int64_t total_steps = 0;  // length of the run
  int64_t log_every = 0;    // steps between lines if there is no terminal; 0: by time
};

// Shows the progress of training. On a terminal, one line is redrawn at most ten times a second.
// Under a `launch` that has a terminal the line is passed to `launch` instead: "LINE\r". Otherwise
// (and with TERM=dumb) lines are printed by time: for the first step, twice a second at the start,
// then less and less often, down to one line in ten seconds, and for checkpoints and the last step.
// If log_every is given, a line is printed every log_every steps instead. Evaluations
// always have a line. An update that prints nothing costs less than 100 ns. Output goes through the
// queue of the standard error stream, so that training never waits for a reader. Not thread-safe.
class Progress {
 public:
  explicit Progress(const ProgressOptions& options);
  ~Progress();  // calls finish()
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `checkpoint`: a checkpoint is about to be written.
  void update(const StepRecord& record, bool checkpoint = false);
  // On a terminal, draws the last step, unless it is drawn already, and ends the line. Otherwise
  // prints the last step's line if lines are printed by time and it has none yet.
  void finish();

 private:
  void draw(const StepRecord& record, double now);
  void print(std::string text) const;
  bool line_is_due(const StepRecord& record, double now) const;
  void print_line(const StepRecord& record, double now, bool checkpoint);
  // Milliseconds to the last step, with evaluations and checkpoints as often as before; negative:
  // unknown.
  double remaining_ms(const StepRecord& record, double now);
  void count_slowest(const StepRecord& record);
  std::string slowest_text() const;

  ProgressOptions options_;
  bool terminal_ = false;   // or `launch` has one
  int passed_columns_ = 0;  // of the terminal of `launch`; 0: the line is drawn here
  bool line_open_ = false;
  bool finished_ = false;
  bool last_drawn_ = true;
  double start_ms_;
  double next_draw_ms_ = 0;          // or prints the next line, by time
  double training_since_ms_ = -1;    // when the first step began; negative: not yet
  double total_step_ms_ = 0;         // of all steps since then
  double speed_ms_ = 0;              // smoothed milliseconds of a step; 0: unknown
  double speed_since_total_ms_ = 0;  // total and step at which its current measurement began
  int64_t speed_since_step_ = 0;
  StepRecord last_;
  // Since the last line: milliseconds of steps, and the ranks that were slowest in a step, each
  // with the sum of the milliseconds by which it worked longer. At most kMaxSlowRanks ranks.
  double line_ms_ = 0;
  std::vector<SlowestRank> slowest_;
};

// The line for a terminal, of at most `columns` characters. eta_ms < 0: unknown. If there is not
// enough space, fields are left out, the least important first.
std::string format_progress(const StepRecord& record,
                            int64_t total_steps,
                            double eta_ms,
                            int columns);

// "1.23M", "45.6k", "789".
std::string short_number(double value);

// "1:02:03", "4:05".
std::string format_duration(double milliseconds);

}  // namespace lockstep::metrics
