#pragma once
// Checkpoints of a run: what is saved, when it is whole, and how a run goes on from one.

#include <optional>

#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/state.h"
#include "runtime/exec/host_copy.h"
#include "runtime/train/checkpoints/error_feedback_store.h"
#include "runtime/train/progression.h"
#include "runtime/train/run_parts.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep {

// Saves and restores a run, all ranks together: rank 0 decides about folders and every rank learns
// the decision and the error; each rank writes and reads its own part of the moments.
class Checkpointer {
 public:
  Checkpointer(const RunParts& parts, const RunMemory& memory, Optimizer& optimizer);

  // Writes checkpoints/step-... and removes those that the config does not keep. Throws the same
  // error on all ranks when any rank fails; earlier checkpoints are untouched then.
  void save(const Progression& progression, uint64_t weights_hash);

  // The checkpoint that --resume names: "none" gives nothing; "auto" the newest of this run's
  // folder, if any; otherwise a path.
  std::optional<std::filesystem::path> choose(const std::string& resume) const;
  // Loads weights, moments and progress; checks that the checkpoint belongs to a run like this one
  // (resume_check.h), but for the fields in `allowed_changes`.
  Progression restore(const std::filesystem::path& folder,
                      const std::vector<std::string>& allowed_changes);

 private:
  CheckpointState state_for(const Progression& progression, uint64_t weights_hash) const;
  void refuse_later_checkpoints(int64_t step) const;
  HostCopy host_moments() const;
  void restore_moments(const CheckpointState& state,
                       const std::filesystem::path& folder,
                       const float* weights);

  const RunParts& parts_;
  const RunMemory& memory_;
  Optimizer& optimizer_;
  ErrorFeedbackStore residuals_;
  std::filesystem::path root_;
  std::vector<NamedSlice> slices_;
};

}  // namespace lockstep
