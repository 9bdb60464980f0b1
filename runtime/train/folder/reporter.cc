#include "runtime/train/folder/reporter.h"

#include <unistd.h>

#include "runtime/base/time.h"

namespace lockstep::train {
namespace {
constexpr double kCheckMs = 1000;  // as often as metrics are written
}

Reporter::Reporter(const RunContext& context, int64_t start_step, int64_t last_step)
    : context_(context),
      jsonl_(context.run_dir / "metrics.jsonl",
             start_step > 0 ? start_step : -1,
             [&context] { context.check_generation(); }),
      progress_({STDERR_FILENO, start_step, last_step, context.config.train.log_every}) {
  if (context.config.output.tensorboard)
    tensorboard_.emplace(
        context.run_dir, start_step, last_step, [&context] { context.check_generation(); });
}

void Reporter::report(const metrics::StepRecord& record, bool checkpoint) {
  if (failed()) return;
  try {
    if (now_ms() >= next_check_ms_) {
      context_.require_folder();
      if (context_.folder != nullptr) context_.folder->optional_files().retry();
      next_check_ms_ = now_ms() + kCheckMs;
    }
    jsonl_.append(record);
    if (tensorboard_) tensorboard_->append(record);
    progress_.update(record, checkpoint);
  } catch (const Error& error) {
    error_ = error;
  }
}

void Reporter::flush() {
  check();
  context_.require_folder();
  jsonl_.flush();
  if (tensorboard_) tensorboard_->flush();
}

void Reporter::finish() {
  check();
  progress_.finish();
  context_.require_folder();
  jsonl_.finish();
  if (tensorboard_) tensorboard_->finish();
  if (context_.folder != nullptr) context_.folder->optional_files().finish();
}

}  // namespace lockstep::train
