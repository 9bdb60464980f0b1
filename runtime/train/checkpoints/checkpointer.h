#pragma once
// Checkpoints of a run: what is saved, when it is whole, and how a run goes on from one.

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
#include "runtime/train/run_parts.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep {

// Where a checkpoint is saved: in the run folder, for all hosts, or in parts on the hosts' own disks.
enum class SaveTo { kRunFolder, kHosts };

// How a save has ended; the same on all ranks.
struct SaveOutcome {
  int64_t step = 0;
  SaveTo where = SaveTo::kRunFolder;
  uint64_t weights_hash = 0;
  double seconds = 0;                // from its begin, on this rank
  std::optional<AgreedError> error;  // none: the checkpoint is there, durable in the run folder
};

// Saves and restores a run, all ranks together: rank 0 decides about folders and every rank learns
// the decision and the error; each rank writes and reads its own part of the moments.
//
// A save in the background: save() leaves a copy of the run to be made and written by a thread of
// this rank. Nothing of the run may change before finish_copy(). Once no rank's part_under_way()
// advance() has all ranks agree whether their files are durable, and rank 0's thread commit the
// checkpoint; once that is done another advance() tells all ranks. The threads use no communicator.
class Checkpointer {
 public:
  Checkpointer(const RunParts& parts, const RunMemory& memory, Optimizer& optimizer);
  // A save that is under way ends soon, and leaves no checkpoint.
  ~Checkpointer();

  // Of all files of a checkpoint together.
  int64_t bytes() const;

  // Writes checkpoints/step-..., or a copy to the hosts (local_copies.h), and removes those that the
  // config does not keep; where that fails on any rank earlier checkpoints are untouched. No save
  // may be under way. With `in_background`, and where the plan has a snapshot, the outcome comes
  // later. All ranks together.
  std::optional<SaveOutcome> save(const Progression& progression,
                                  uint64_t weights_hash,
                                  SaveTo where,
                                  bool in_background);

  // Whether a save is under way; the same on all ranks.
  bool saving() const { return phase_ != Phase::kIdle; }
  // Returns when the run, of which a copy is being made, may change.
  void finish_copy();
  // Whether this rank still has something to do before the next advance().
  bool part_under_way() const { return task_.under_way(); }
  // Waits for the other ranks' parts and this one's; the outcome where that was the last step of
  // the save. All ranks together, while saving().
  std::optional<SaveOutcome> advance();
  // Waits for the outcome of a save that is under way. All ranks together, while saving().
  SaveOutcome finish();

  // Goes on from the checkpoint that --resume names: "none" gives nothing; "auto" the newest of this
  // run, in its folder or on the hosts, if any; otherwise a path. Says from which. All ranks
  // together; throws AgreedError.
  std::optional<Progression> resume(const std::string& resume,
                                    const std::vector<std::string>& allowed_changes);
  // Loads weights, moments and progress; checks that the checkpoint belongs to a run like this one
  // (resume_check.h), but for the fields in `allowed_changes`. All ranks together; throws
  // AgreedError.
  Progression restore(const std::filesystem::path& folder,
                      const std::vector<std::string>& allowed_changes);

  // The run has ended, and its last checkpoint is in its folder: the hosts need keep none.
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

  const RunParts& parts_;
  const RunMemory& memory_;
  Optimizer& optimizer_;
  ErrorFeedbackStore residuals_;
  LocalCopies local_;
  std::filesystem::path root_;
  std::vector<NamedSlice> slices_;

  // Of the save under way.
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
