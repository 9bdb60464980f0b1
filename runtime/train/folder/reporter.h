#pragma once

#include <optional>

#include "runtime/metrics/jsonl.h"
#include "runtime/metrics/progress.h"
#include "runtime/metrics/tensorboard.h"
#include "runtime/train/run_context.h"

namespace lockstep::train {

// What the user sees of a run: progress, metrics.jsonl, the TensorBoard file and the page for
// Prometheus. Only rank 0 has one. A disk that does not accept data does not end the run. Once a
// second, and in flush() and finish(), it checks the run folder, and throws CheckpointError if the
// folder no longer belongs to this run.
class Reporter {
 public:
  // Continues after `start_step` completed steps; shows progress up to `last_step`.
  Reporter(const RunContext& context, int64_t start_step, int64_t last_step);

  // `checkpoint`: a checkpoint is about to be written. An error does not end the run here, because
  // the other ranks would wait: it is kept, and check(), flush() and finish() throw it.
  void report(const metrics::StepRecord& record, bool checkpoint);
  bool failed() const { return error_.has_value(); }
  void check() const {
    if (error_) throw *error_;
  }
  void flush();
  // `done`: nothing is left to do.
  void finish(bool done);

 private:
  const RunContext& context_;
  std::optional<Error> error_;
  double next_check_ms_ = 0;
  metrics::JsonlWriter jsonl_;
  std::optional<metrics::TensorBoardWriter> tensorboard_;
  metrics::Progress progress_;
};

}  // namespace lockstep::train
