#pragma once
// One pass over the evaluation data, for losses as for predictions.

#include <functional>
#include <vector>

#include "runtime/data/loader.h"
#include "runtime/exec/length_executors.h"
#include "runtime/train/run_parts.h"
#include "runtime/train/step/batch_stage.h"

namespace lockstep {

// Runs the graph without gradients over the whole evaluation set (or its first eval.max_samples
// samples) in stored order: lanes split over ranks as in training, the last batch padded with rows
// that do not count.
class EvaluationPass {
 public:
  // `gather`: the all-gather of parameters that are sharded; else null.
  EvaluationPass(const RunParts& parts, const RunMemory& memory, BucketAllGather* gather = nullptr);

  // Of all ranks together.
  int64_t samples() const;
  // What each lane's run leaves: the graph's result, in memory that the host reads.
  const std::byte* result() const { return result_.data(); }

  // Each lane's run leaves its predictions there, too, in memory of the backend.
  void keep_predictions(std::byte* memory) { prediction_ = memory; }

  struct Visitor {
    // The local lane has run on a batch of at least one sample, which lies on the host; `rows`: those
    // of each sample that were computed and that the loss counts.
    std::function<void(size_t lane, const LaneBatch& batch, int64_t rows)> lane_done;
    // All lanes of a step have: as often on every rank.
    std::function<void()> step_done = [] {};
  };
  void run(const Visitor& visitor);

 private:
  const RunParts& parts_;
  LengthExecutors executors_;
  Loader loader_;
  BatchStage stage_;
  LaneContext& lane_;  // of the lane that runs
  std::span<std::byte> result_;
  std::byte* prediction_ = nullptr;
};

}  // namespace lockstep
