#pragma once
// Writes the checkpoints of a run.

#include <atomic>
#include <functional>
#include <optional>

#include "collectives/agree/agreement.h"
#include "runtime/checkpoint/format/state.h"
#include "runtime/checkpoint/format/writer.h"
#include "runtime/checkpoint/run/background_task.h"
#include "runtime/checkpoint/run/local_copies.h"
#include "runtime/checkpoint/run/saved_run.h"

namespace lockstep::checkpoint {

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
  std::optional<collectives::AgreedError> error;
};

// Saves a run, all ranks together. Rank 0 makes the decisions about folders, and every rank learns
// the decision and the error. Each rank writes its own part of the moments.
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
  // All borrowed.
  Checkpointer(const SavedRun& run, CheckpointSource& source, const LocalCopies& local);
  // Cancels a save in progress, which then leaves no checkpoint.
  ~Checkpointer();

  // Writes checkpoints/step-..., or a copy to the hosts (local_copies.h), and removes checkpoints
  // that the config does not keep. `state`: without its files. If this fails on any rank, earlier
  // checkpoints are untouched. No other save may be in progress. With `in_background`, and if the
  // source has a snapshot, nothing is returned and the outcome comes from advance(). Collective.
  std::optional<SaveOutcome> save(CheckpointState state, SaveTo where, bool in_background);

  // Whether a save is in progress; the same on all ranks.
  bool saving() const { return save_.has_value(); }
  // Returns when the state has been copied and may change.
  void finish_copy() { copied_.wait(false, std::memory_order_acquire); }
  // Whether this rank's thread is still working towards the next advance().
  bool part_under_way() const { return task_.under_way(); }
  // Waits for this rank's and the other ranks' parts. Returns the outcome if that was the last
  // phase of the save. Collective; only while saving().
  std::optional<SaveOutcome> advance();
  // Waits for the outcome of the save in progress. Collective; only while saving().
  SaveOutcome finish();

 private:
  // Where a save goes, as this rank sees it.
  struct Place {
    std::filesystem::path root;
    bool leads;  // whether this rank makes, commits and removes folders
    CheckpointWriter::Reach reach;
  };
  struct Save {
    CheckpointState state;
    SaveTo where;
    Place place;
    bool in_background;
    double begin_ms;
    std::optional<CheckpointWriter> writer = {};
    std::optional<FileRecord> model_record = {}, shard_record = {};  // of this rank's files
    bool committing = false;
  };

  void begin();
  void write_part();
  void gather_records();
  void commit();
  std::optional<SaveOutcome> take_step();
  SaveOutcome end(std::optional<collectives::AgreedError> error);
  void on_leaders(const std::function<void()>& action) const;

  const SavedRun& run_;
  CheckpointSource& source_;
  const LocalCopies& local_;
  std::filesystem::path root_;
  std::optional<Save> save_;  // in progress
  std::atomic<bool> copied_{true};
  std::atomic<bool> cancelled_{false};
  BackgroundTask task_;  // the last member: it uses the others
};

}  // namespace lockstep::checkpoint
