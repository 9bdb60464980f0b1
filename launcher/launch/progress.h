#pragma once
// How far a run has come, as its folder tells, and what is kept there of starts that have failed.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launcher/launch/restarts.h"
#include "runtime/checkpoint/folder.h"

namespace lockstep::launch {

// What a start has lost: steps that no checkpoint has, and the time since the newest checkpoint, or
// since training began where that was later.
struct Lost {
  int64_t steps = 0;
  double seconds = 0;
};

// Looks into one run folder; the folder need not be there yet, and may be another run's. If it
// cannot be read, its state is what it was before.
class Progress {
 public:
  explicit Progress(std::filesystem::path run_dir);

  // Before a start: what is there now.
  void begin_start();
  // Adds to the end of that start what the folder tells of it: done, made_steps, signalled,
  // stuck_rank.
  void complete(StartEnd& end);
  // The step of the newest checkpoint that can be read; 0: there is none.
  int64_t kept_step() const;
  // Whether ranks of that start have written to the folder: it was not another run's.
  bool is_ours(const StartEnd& end) const;
  // Whether there is a newer checkpoint than at begin_start().
  bool has_progressed() const { return kept_step() > begin_step_; }

  // Of ranks that have ended: a line on each that failed and has left a record.
  std::vector<std::string> last_words(const StartEnd& end) const;
  Lost lost(const StartEnd& end) const;
  // Moves the flight recorders to starts/NNNN, and writes what the ranks said and how they ended
  // beside them. Of the folders there, the first 3 and the newest 20 stay. Returns the new one.
  // Throws IoError, also if another run writes to the run folder.
  std::filesystem::path keep_post_mortem(const StartEnd& end,
                                         const Lost& lost,
                                         const std::string& said) const;

  // The time of all steps in metrics.jsonl after `step`, up to the newest checkpoint.
  double seconds_of_steps_after(int64_t step) const;
  double seconds_of_steps(int64_t after, int64_t last) const;

 private:
  std::optional<CheckpointEntry> newest() const;
  bool made_steps(const StartEnd& end) const;
  bool has_another_writer(const StartEnd& end) const;

  std::filesystem::path run_dir_;
  mutable std::optional<CheckpointEntry> newest_;
  int64_t begin_step_ = 0;
  std::optional<std::filesystem::file_time_type> end_time_, metrics_time_;
};

}  // namespace lockstep::launch
