#pragma once

#include <optional>

#include "runtime/metrics/jsonl.h"
#include "runtime/metrics/progress.h"
#include "runtime/metrics/tensorboard.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

// What the user sees of a run: progress, metrics.jsonl and the TensorBoard file. Only rank 0 has
// one.
class Reporter {
 public:
  // Continues after `start_step` completed steps; shows progress up to `last_step`.
  Reporter(const RunParts& parts, int64_t start_step, int64_t last_step);

  // `checkpoint`: one is about to be written.
  void report(const StepRecord& record, bool checkpoint);
  void flush();
  void finish();

 private:
  JsonlWriter jsonl_;
  std::optional<TensorBoardWriter> tensorboard_;
  Progress progress_;
};

}  // namespace lockstep
