#pragma once
// Saves the checkpoints of a run while it trains.
//
// Each step goes: finish_copy(), before the step changes the state; the ranks tell each other
// whether part_under_way(); advance(), once it is on none of them; save(), if a checkpoint is due.
// A save in progress ends in advance(), in the next save(), or in finish() at the end of the run.

#include <functional>
#include <optional>
#include <string>

#include "runtime/checkpoint/run/checkpointer.h"
#include "runtime/checkpoint/run/local_copies.h"
#include "runtime/checkpoint/run/run_clock.h"
#include "runtime/checkpoint/run/saved_run.h"

namespace lockstep::checkpoint {

class Saving {
 public:
  // `source`: borrowed.
  Saving(SavedRun run, CheckpointSource& source);

  // Restores the state of a checkpoint, on all ranks, and returns its step. `on_hosts`: each rank
  // sees its own host's copy, and only rank 0 the weights. Throws AgreedError.
  using Restore = std::function<int64_t(const std::filesystem::path& folder, bool on_hosts)>;
  // Restores the checkpoint that --resume names, and logs which. "none": none. "auto": the newest
  // of this run, in its folder or on the hosts, if there is any. Otherwise a path. Returns whether
  // there was one. Collective; throws AgreedError.
  bool resume(const std::string& resume, const Restore& restore);
  // Measures from now on when a checkpoint is due, and when the run must stop. On rank 0.
  void start_clock(const RunClockOptions& options) { clock_.emplace(options); }
  // Call once per step. False without a clock.
  bool must_stop() { return clock_ && clock_->must_stop(); }
  bool due() const { return clock_ && clock_->save_due(); }

  // Waits until the state has been copied and may change.
  void finish_copy() { checkpointer_.finish_copy(); }
  // Whether this rank is still writing its part of a checkpoint.
  bool part_under_way() const { return checkpointer_.part_under_way(); }
  // Continues a save in progress, whose parts no rank is writing any more. Collective, as are the
  // following. A save that has failed is logged and counted, or throws the same AgreedError on all
  // ranks if that is the config's policy or the save was the `last`.
  void advance();
  // Saves in the background, except the last checkpoint. First waits for a save in progress.
  void save(CheckpointState state, SaveTo where, bool last);
  // Waits for the save in progress, if there is one.
  void finish();
  // The same if the run ends, on all ranks, for another reason: what is being written is still good
  // to resume from, and a failure is only logged.
  void finish_before_exit();

  int64_t written() const { return written_; }  // checkpoints in the run folder by this process
  int64_t failed() const { return failed_; }
  // The step of the newest checkpoint that is good, as far as this process knows.
  const std::optional<int64_t>& good_step() const { return good_step_; }

 private:
  void note(const SaveOutcome& outcome, bool last);

  SavedRun run_;
  LocalCopies local_;
  Checkpointer checkpointer_;
  std::optional<RunClock> clock_;
  bool wait_logged_ = false;
  int64_t written_ = 0, failed_ = 0;
  std::optional<int64_t> good_step_;
};

}  // namespace lockstep::checkpoint
