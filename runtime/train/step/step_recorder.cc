#include "runtime/train/step/step_recorder.h"

#include "runtime/metrics/environment.h"

namespace lockstep::train {
namespace {

// Ranks that make others wait for this share of a step are named in the record.
constexpr double kReportThreshold = 0.05;

// Tokens of a training sample on average, without padding; 0 if samples are not texts.
double tokens_per_sample(const RunContext& context) {
  if (context.model.input != config::ModelInput::kTokens) return 0;
  const data::Dataset& dataset = *context.data.train;
  int64_t tokens = 0;
  for (int64_t i = 0; i < dataset.samples(); ++i) {
    const int64_t of_sample = dataset.tokens(i);
    if (of_sample == 0) return static_cast<double>(context.model.context);  // no sample is padded
    tokens += of_sample;
  }
  return static_cast<double>(tokens) / static_cast<double>(dataset.samples());
}

}  // namespace

StepRecorder::StepRecorder(const RunContext& context, const Parts& parts)
    : context_(context),
      parts_(parts),
      peak_flops_(context.backend.peak_flops() * context.communicator.size()),
      sample_tokens_(tokens_per_sample(context)) {}

metrics::StepRecord StepRecorder::record(int64_t step,
                                         const collectives::StepTotals& totals,
                                         const PlannedUpdate& update) const {
  const StepClock& clock = parts_.clock;
  const LossScale& loss_scale = parts_.update.loss_scale();
  const double step_ms = now_ms() - clock.start_ms;
  const double batch = static_cast<double>(context_.config.train.global_batch);
  metrics::StepRecord record;
  record.step = step;
  record.time = metrics::seconds_since_1970();
  record.samples = step * context_.config.train.global_batch;
  record.epoch =
      static_cast<double>(record.samples) / static_cast<double>(context_.data.train->samples());
  record.loss = mean_loss(totals);
  record.lr = update.lr;
  record.grad_norm = update.gradient_norm;
  record.step_ms = step_ms;
  record.predicted_step_ms = context_.predicted_step_ms;
  record.compute_ms = clock.phases.compute;
  record.comm_exposed_ms = clock.phases.exchange;
  record.straggler_ms = clock.phases.stragglers;
  const double slower_ms = totals.slowest_ms - totals.fastest_ms;
  if (slower_ms > kReportThreshold * step_ms)
    record.slowest = metrics::SlowestRank{
        totals.slowest_rank, hosts_[static_cast<size_t>(totals.slowest_rank)].c_str(), slower_ms};
  record.data_wait_ms = clock.phases.data;
  record.optimizer_ms = clock.phases.optimizer;
  record.samples_per_s = batch / step_ms * 1000;
  if (sample_tokens_ > 0) record.tokens_per_s = record.samples_per_s * sample_tokens_;
  if (peak_flops_ > 0)
    record.mfu = parts_.gradients.computed_share() * context_.flops_per_sample *
                 record.samples_per_s / peak_flops_;
  if (loss_scale.dynamic()) record.loss_scale = loss_scale.value();
  record.skipped_steps = loss_scale.state().skipped;
  if (parts_.checks.digest())
    record.state_digest =
        context_.plan.sharding.shards_optimizer() ? totals.digest_sum : totals.digest;
  return record;
}

}  // namespace lockstep::train
