#pragma once
// How far a run has come, according to its folder, and the records kept there of starts that
// failed.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launcher/launch/restarts.h"
#include "runtime/checkpoint/format/folder.h"

namespace lockstep::launch {

// The work that a start has lost: steps that no checkpoint has, and the time since the newest
// checkpoint, or since training began if that was later.
struct Lost {
  int64_t steps = 0;
  double seconds = 0;
};

// Looks into one run folder, which need not exist yet and may belong to another run. If it cannot
// be read, its last known state counts.
class Progress {
 public:
  explicit Progress(std::filesystem::path run_dir);

  // Call it before a start: records the folder's state.
  void begin_start();
  // Fills in the fields of `end` that the folder determines: done, made_steps, signalled,
  // stuck_rank.
  void complete(StartEnd& end);
  // The step of the newest readable checkpoint; 0 if there is none.
  int64_t kept_step() const;
  // Whether ranks of that start have written to the folder, so that it did not belong to another
  // run.
  bool is_ours(const StartEnd& end) const;
  // Whether there is a newer checkpoint than at begin_start().
  bool has_progressed() const { return kept_step() > begin_step_; }

  // Returns a line for each rank that failed, with the state in its flight record.
  std::vector<std::string> failure_lines(const StartEnd& end) const;
  Lost lost(const StartEnd& end) const;
  // Moves the flight recorders to starts/NNNN, and writes the ranks' output and exit codes beside
  // them. The first 3 and the newest 20 folders there are kept. Returns the new one. Throws
  // IoError, also if another run writes to the run folder.
  std::filesystem::path keep_post_mortem(const StartEnd& end,
                                         const Lost& lost,
                                         const std::string& rank_errors) const;

  // The time of all steps in metrics.jsonl after `step`, up to the newest checkpoint.
  double seconds_of_steps_after(int64_t step) const;
  double seconds_of_steps(int64_t after, int64_t last) const;

 private:
  std::optional<checkpoint::CheckpointEntry> newest() const;
  bool made_steps(const StartEnd& end) const;
  bool has_another_writer(const StartEnd& end) const;

  std::filesystem::path run_dir_;
  mutable std::optional<checkpoint::CheckpointEntry> newest_;
  int64_t begin_step_ = 0;
  std::string begin_utc_;
  std::optional<std::filesystem::file_time_type> end_time_, metrics_time_;
};

}  // namespace lockstep::launch
