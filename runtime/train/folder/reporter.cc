#include "runtime/train/folder/reporter.h"

#include <unistd.h>

#include "runtime/base/time.h"

namespace lockstep {
namespace {
constexpr double kCheckMs = 1000;  // as often as metrics are written
}

Reporter::Reporter(const RunParts& parts, int64_t start_step, int64_t last_step)
    : parts_(parts),
      jsonl_(parts.run_dir / "metrics.jsonl",
             start_step > 0 ? start_step : -1,
             [&parts] { parts.check_generation(); }),
      progress_({STDERR_FILENO, start_step, last_step, parts.config.train.log_every}) {
  if (parts.config.output.tensorboard)
    tensorboard_.emplace(
        parts.run_dir, start_step, last_step, [&parts] { parts.check_generation(); });
}

void Reporter::report(const StepRecord& record, bool checkpoint) {
  if (now_ms() >= next_check_ms_) {
    parts_.check_folder();
    if (parts_.folder != nullptr) parts_.folder->optional_files().retry();
    next_check_ms_ = now_ms() + kCheckMs;
  }
  jsonl_.append(record);
  if (tensorboard_) tensorboard_->append(record);
  progress_.update(record, checkpoint);
}

void Reporter::flush() {
  parts_.check_folder();
  jsonl_.flush();
  if (tensorboard_) tensorboard_->flush();
}

void Reporter::finish() {
  progress_.finish();
  parts_.check_folder();
  jsonl_.finish();
  if (tensorboard_) tensorboard_->finish();
  if (parts_.folder != nullptr) parts_.folder->optional_files().finish();
}

}  // namespace lockstep
