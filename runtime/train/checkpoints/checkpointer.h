#pragma once
// Saves and restores checkpoints of a run.

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collectives/agreement.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/state.h"
#include "runtime/exec/host_copy.h"
#include "runtime/train/checkpoints/background_task.h"
#include "runtime/train/checkpoints/checkpoint_content.h"
#include "runtime/train/checkpoints/error_feedback_store.h"
#include "runtime/train/checkpoints/local_copies.h"
#include "runtime/train/progression.h"
#include "runtime/train/run_context.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep {

// Where a checkpoint is saved: in the run folder, for all hosts, or in parts on the hosts' own
// disks.
enum class SaveTo { kRunFolder, kHosts };

// How a save has ended; the same on all ranks.
struct SaveOutcome {
  int64_t step = 0;
  SaveTo where = SaveTo::kRunFolder;
  uint64_t weights_hash = 0;
  double seconds = 0;  // since it began, on this rank
  // none: the checkpoint is complete, and durable if in the run folder
  std::optional<AgreedError> error;
};

// Saves and restores a run, all ranks together. Rank 0 makes the decisions about folders, and every
// rank learns the decision and the error. Each rank writes and reads its own part of the moments.
//
// A save in the background has these phases:
// 1. save() starts a thread on this rank that copies the run's state and writes it. Nothing of the
//    state may change before finish_copy() returns.
// 2. Once part_under_way() is false on all ranks, advance() makes all ranks agree whether their
//    files are durable, and rank 0's thread commits the checkpoint.
// 3. Once that is done, another advance() reports the outcome on all ranks.
// The threads never use a communicator.
class Checkpointer {
 public:
  Checkpointer(const RunContext& context, const RunMemory& memory, Optimizer& optimizer);
  // Cancels a save in progress, which then leaves no checkpoint.
  ~Checkpointer();

  // Bytes of all files of a checkpoint.
  int64_t bytes() const;

  // Writes checkpoints/step-..., or a copy to the hosts (local_copies.h), and removes checkpoints
  // that the config does not keep. If this fails on any rank, earlier checkpoints are untouched. No
  // other save may be in progress. With `in_background`, and if the plan has a snapshot, nothing is
  // returned and the outcome comes from advance(). Collective.
  std::optional<SaveOutcome> save(const Progression& progression,
                                  uint64_t weights_hash,
                                  SaveTo where,
                                  bool in_background);

  // Whether a save is in progress; the same on all ranks.
  bool saving() const { return phase_ != Phase::kIdle; }
  // Returns when the state has been copied and may change.
  void finish_copy();
  // Whether this rank's thread is still working towards the next advance().
  bool part_under_way() const { return task_.under_way(); }
  // Waits for this rank's and the other ranks' parts. Returns the outcome if that was the last
  // phase of the save. Collective; only while saving().
  std::optional<SaveOutcome> advance();
  // Waits for the outcome of the save in progress. Collective; only while saving().
  SaveOutcome finish();

  // Resumes from the checkpoint that --resume names, and logs which. "none": returns nothing.
  // "auto": the newest of this run, in its folder or on the hosts, if there is any. Otherwise a
  // path. Collective; throws AgreedError.
  std::optional<Progression> resume(const std::string& resume,
                                    const std::vector<std::string>& allowed_changes);
  // Loads weights, moments and progress. Checks that the checkpoint belongs to a run like this one
  // (resume_check.h), except for the fields in `allowed_changes`. Collective; throws AgreedError.
  Progression restore(const std::filesystem::path& folder,
                      const std::vector<std::string>& allowed_changes);

  // Removes the hosts' copies. Call it when the run has ended and its last checkpoint is in its
  // folder.
  void remove_local_copies() const { local_.remove(); }

 private:
  enum class Phase { kIdle, kWriting, kCommitting };

  CheckpointState state_for(const Progression& progression, uint64_t weights_hash) const;
  void begin(const Progression& progression, uint64_t weights_hash);
  void write_part();
  void gather_records();
  void commit();
  std::optional<SaveOutcome> take_step();
  SaveOutcome end(std::optional<AgreedError> error);
  bool leads() const;
  CheckpointWriter::Reach reach() const;
  void on_leaders(const std::function<void()>& action) const;
  const std::filesystem::path& root() const;
  std::string choose(const std::string& resume) const;
  void refuse_later_checkpoints(int64_t step) const;
  void broadcast_weights(float* weights) const;
  HostCopyOf<std::byte> host_moments() const;
  void restore_moments(const CheckpointState& state,
                       const std::filesystem::path& folder,
                       const float* weights);
  void restore_halves(const CheckpointState& state,
                      const std::filesystem::path& folder,
                      size_t moment,
                      BFloat16* to) const;

  const RunContext& context_;
  const RunMemory& memory_;
  Optimizer& optimizer_;
  ErrorFeedbackStore residuals_;
  LocalCopies local_;
  std::filesystem::path root_;
  std::vector<NamedSlice> slices_;

  // The save in progress.
  Phase phase_ = Phase::kIdle;
  SaveTo where_ = SaveTo::kRunFolder;
  bool in_background_ = false;
  double begin_ms_ = 0;
  CheckpointState state_;
  bool is_best_ = false;
  CheckpointContent content_;
  std::optional<CheckpointWriter> writer_;
  std::optional<FileRecord> model_record_, shard_record_;  // of this rank's files
  std::atomic<bool> copied_{true};
  std::atomic<bool> cancelled_{false};
  BackgroundTask task_;  // the last member: it uses the others
};

}  // namespace lockstep
