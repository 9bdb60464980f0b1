#pragma once

#include <optional>

#include "runtime/metrics/jsonl.h"
#include "runtime/metrics/progress.h"
#include "runtime/metrics/tensorboard.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

// What the user sees of a run: progress, metrics.jsonl and the TensorBoard file. Only rank 0 has
// one. A disk that does not take them does not end the run. Throws, once a second and at flush() and
// finish(), CheckpointError if the run folder is not this run's any more.
class Reporter {
 public:
  // Continues after `start_step` completed steps; shows progress up to `last_step`.
  Reporter(const RunParts& parts, int64_t start_step, int64_t last_step);

  // `checkpoint`: one is about to be written.
  void report(const StepRecord& record, bool checkpoint);
  void flush();
  void finish();

 private:
  const RunParts& parts_;
  double next_check_ms_ = 0;
  JsonlWriter jsonl_;
  std::optional<TensorBoardWriter> tensorboard_;
  Progress progress_;
};

}  // namespace lockstep
