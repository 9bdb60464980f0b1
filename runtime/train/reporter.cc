#include "runtime/train/reporter.h"

#include <unistd.h>

namespace lockstep {

Reporter::Reporter(const RunParts& parts, int64_t start_step, int64_t last_step)
    : jsonl_(parts.run_dir / "metrics.jsonl", start_step > 0 ? start_step : -1),
      progress_({STDERR_FILENO, start_step, last_step, parts.config.train.log_every}) {
  if (parts.config.output.tensorboard) tensorboard_.emplace(parts.run_dir, start_step, last_step);
}

void Reporter::report(const StepRecord& record, bool checkpoint) {
  jsonl_.append(record);
  if (tensorboard_) tensorboard_->append(record);
  progress_.update(record, checkpoint);
}

void Reporter::flush() {
  jsonl_.flush();
  if (tensorboard_) tensorboard_->flush();
}

void Reporter::finish() {
  progress_.finish();
  jsonl_.flush();
  if (tensorboard_) tensorboard_->finish();
}

}  // namespace lockstep
