#pragma once

#include <optional>

#include "runtime/metrics/jsonl.h"
#include "runtime/metrics/progress.h"
#include "runtime/metrics/tensorboard.h"
#include "runtime/train/run_context.h"

namespace lockstep {

// What the user sees of a run: progress, metrics.jsonl and the TensorBoard file. Only rank 0 has
// one. A disk that does not accept data does not end the run. Once a second, and in flush() and
// finish(), it checks the run folder, and throws CheckpointError if the folder no longer belongs to
// this run.
class Reporter {
 public:
  // Continues after `start_step` completed steps; shows progress up to `last_step`.
  Reporter(const RunContext& context, int64_t start_step, int64_t last_step);

  // `checkpoint`: a checkpoint is about to be written.
  void report(const StepRecord& record, bool checkpoint);
  void flush();
  void finish();

 private:
  const RunContext& context_;
  double next_check_ms_ = 0;
  JsonlWriter jsonl_;
  std::optional<TensorBoardWriter> tensorboard_;
  Progress progress_;
};

}  // namespace lockstep
