#pragma once
// One pass over the evaluation data, for losses or predictions.

#include <functional>
#include <span>
#include <vector>

#include "runtime/data/loader.h"
#include "runtime/exec/length_bucket_executors.h"
#include "runtime/train/run_context.h"
#include "runtime/train/step/batch_stage.h"

namespace lockstep::train {

// Runs the graph without gradients over the whole evaluation set, or its first eval.max_samples
// samples, in stored order. Lanes are divided among ranks as in training. The last batch is padded
// with rows that do not count.
class EvaluationPass {
 public:
  // `gather`: the all-gather of parameters if they are sharded; otherwise null.
  EvaluationPass(const RunContext& context,
                 const RunMemory& memory,
                 collectives::BucketAllGather* gather = nullptr);

  // The samples of all ranks together.
  int64_t samples() const;
  // The graph's result after each lane's run, in memory that the host reads.
  const std::byte* result() const { return result_.data(); }

  // Makes each lane's run also copy its predictions to `memory`, which belongs to the backend.
  void keep_predictions(std::byte* memory) { prediction_ = memory; }

  // Reports every op to `observer`, until it is null.
  void observe(exec::OpObserver* observer) { executors_.observe(observer); }

  struct Visitor {
    // Called when a local lane has run on a batch of at least one sample, which is in host memory.
    // `rows`: the rows of each sample that were computed and that the loss counts.
    std::function<void(size_t lane, const data::LaneBatch& batch, int64_t rows)> lane_done;
    // Called when all lanes of a step are done, equally often on every rank.
    std::function<void()> step_done = [] {};
  };
  void run(const Visitor& visitor);

  // Writes `sample_elements` floats of each of a lane's samples, of which the first is number
  // `first`.
  using Writer =
      std::function<void(const data::LaneBatch& batch, int64_t first, std::span<float> to)>;
  // Runs, and on rank 0 calls `take` with what `write` wrote of some samples, in stored order:
  // (samples, sample_elements). Collective.
  void collect_parts(int64_t sample_elements,
                     const Writer& write,
                     const std::function<void(std::span<const float> samples)>& take);

  // Runs, and returns `sample_elements` floats of each sample, in stored order, on rank 0; nothing
  // on the other ranks. Collective.
  std::vector<float> collect(int64_t sample_elements, const Writer& write);

 private:
  const RunContext& context_;
  exec::LengthBucketExecutors executors_;
  data::Loader loader_;
  BatchStage stage_;
  graph::LaneContext& lane_;  // the lane that runs
  std::span<std::byte> result_;
  std::byte* prediction_ = nullptr;
};

}  // namespace lockstep::train
