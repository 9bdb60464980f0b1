#pragma once
// How far a run has come, as its folder tells, and what is kept there of starts that have failed.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launcher/launch/restarts.h"
#include "runtime/train/folder/run_end.h"

namespace lockstep::launch {

// What a start has lost: steps that no checkpoint has, and the time since the newest checkpoint, or
// since training began where that was later.
struct Lost {
  int64_t steps = 0;
  double seconds = 0;
};

// Looks into one run folder; the folder need not be there yet.
class Progress {
 public:
  explicit Progress(std::filesystem::path run_dir);

  // Before a start: what is there now.
  void begin_start();
  // How the run has ended, where it came to an end of its own since begin_start().
  std::optional<RunEnd> end() const;
  // The step of the newest checkpoint that can be read; 0: there is none.
  int64_t kept_step() const;
  // Whether there is a newer one than at begin_start().
  bool has_progressed() const { return kept_step() > kept_step_; }

  // Of ranks that have ended: a line on each that failed and has left a record.
  std::vector<std::string> last_words(const StartEnd& end) const;
  Lost lost(const StartEnd& end) const;
  // Moves the flight recorders to starts/NNNN, and writes what the ranks said and how they ended
  // beside them. Returns that folder. Throws IoError.
  std::filesystem::path keep_post_mortem(const StartEnd& end,
                                         const Lost& lost,
                                         const std::string& said) const;

  // The time of all steps in metrics.jsonl after `step`.
  double seconds_of_steps_after(int64_t step) const;

 private:
  std::filesystem::path run_dir_;
  int64_t kept_step_ = 0;
  std::optional<std::filesystem::file_time_type> end_time_;
};

}  // namespace lockstep::launch
