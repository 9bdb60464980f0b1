#include "runtime/train/folder/reporter.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "runtime/base/text.h"
#include "runtime/base/time.h"
#include "runtime/config/differences.h"
#include "runtime/config/paths.h"

namespace lockstep::train {
namespace {
constexpr double kCheckMs = 1000;  // as often as metrics are written

// The fields by which people compare runs; each applies to all of them.
constexpr const char* kComparedFields[] = {"model",
                                           "optimizer",
                                           "train.global_batch",
                                           "train.steps",
                                           "train.lanes",
                                           "schedule.kind",
                                           "schedule.lr",
                                           "schedule.warmup_steps",
                                           "execution.precision",
                                           "seed"};

metrics::TensorBoardRun tensorboard_run(const RunContext& context) {
  metrics::TensorBoardRun run;
  run.config = config::recorded_text(context.config);
  double weight_decay = 0;
  for (const config::FieldValue& field : config::field_values(context.config)) {
    const std::optional<double> number = parse_as<double>(field.value);
    if (std::ranges::find(kComparedFields, field.path) != std::end(kComparedFields))
      run.hparams.emplace_back(field.path, field.value);
    if (number && !run.hparams.empty() && run.hparams.back().first == field.path)
      run.hparams.back().second = *number;
    if (field.path.starts_with("optimizer.") && field.path.ends_with(".weight_decay"))
      weight_decay = number.value_or(0);
  }
  run.hparams.emplace_back("optimizer.weight_decay", weight_decay);
  run.hparams.emplace_back("parameters", static_cast<double>(context.plan.layout.parameters));
  run.hparams.emplace_back("ranks", static_cast<double>(context.communicator.size()));
  return run;
}

}  // namespace

Reporter::Reporter(const RunContext& context, int64_t start_step, int64_t last_step)
    : context_(context),
      jsonl_(context.run_dir / "metrics.jsonl",
             start_step > 0 ? start_step : -1,
             [&context] { context.check_generation(); }),
      progress_({STDERR_FILENO, start_step, last_step, context.config.train.log_every}) {
  if (context.config.output.tensorboard)
    tensorboard_.emplace(
        context.run_dir,
        start_step,
        last_step,
        [&context] { context.check_generation(); },
        tensorboard_run(context));
  if (context.page != nullptr)
    context.page->begin(start_step, last_step, context.plan.memory.total_bytes());
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
    if (context_.page != nullptr) context_.page->update(record);
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

void Reporter::finish(bool done) {
  check();
  progress_.finish();
  context_.require_folder();
  jsonl_.finish();
  if (tensorboard_) tensorboard_->finish(done);
  if (context_.folder != nullptr) context_.folder->optional_files().finish();
}

}  // namespace lockstep::train
