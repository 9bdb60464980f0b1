#include "runtime/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "collectives/agreement.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/metrics/phase_timer.h"
#include "runtime/train/initialize.h"
#include "runtime/train/schedule.h"
#include "runtime/train/stop_signal.h"

namespace lockstep {
namespace {

// Bits of the flags that ranks exchange each step.
constexpr int64_t kStopFlag = 1;

// A phase of the step: its milliseconds, and a span in the timeline when one is kept.
struct Phase {
  PhaseTimer timer;
  Timeline::Span span;
  Phase(double& sum_ms, Timeline* timeline, const char* name)
      : timer(sum_ms), span(timeline, name, "step") {}
};

// Scale that makes the clipped global norm at most `limit`; 1 without a limit.
double clip_factor(double norm, double limit) {
  constexpr double kEpsilon = 1e-6;  // as elsewhere, so that losses can be compared
  return limit > 0 ? std::min(1.0, limit / (norm + kEpsilon)) : 1.0;
}

}  // namespace

Trainer::Trainer(const RunParts& parts)
    : parts_(parts),
      memory_(allocate_run(parts.backend, parts.plan)),
      reducer_(parts.communicator,
               parts.backend,
               {parts.plan.lanes,
                parts.config.comm.order == CommConfig::Order::kFast,
                parts.plan.buckets},
               memory_.gradients,
               memory_.staging),
      executor_(parts.training,
                parts.plan.training,
                parts.plan.layout,
                parts.backend,
                {memory_.arena, memory_.parameters}),
      optimizer_(
          parts.config.optimizer,
          parts.plan.layout,
          owned_ranges(parts.plan.buckets, parts.communicator.rank(), parts.communicator.size()),
          parts.backend,
          memory_.moments),
      checkpointer_(parts, memory_, optimizer_),
      statistics_(static_cast<size_t>(parts.local_lanes())),
      peak_flops_(parts.backend.peak_flops() * parts.communicator.size()) {
  if (parts.evaluation != nullptr)
    evaluator_ = std::make_unique<Evaluator>(parts, memory_, reducer_);
}

Trainer::~Trainer() = default;

LaneContext Trainer::lane_context(int local_lane, const LaneBatch& batch) const {
  LaneContext lane;
  lane.seed = parts_.config.seed;
  lane.step = static_cast<uint32_t>(progression_.step);
  lane.lane = static_cast<uint32_t>(reducer_.first_lane() + local_lane);
  lane.valid_rows = batch.valid_samples * parts_.training.loss_rows_per_sample;
  lane.gradient_scale = 1.0f / static_cast<float>(parts_.config.train.global_batch *
                                                  parts_.training.loss_rows_per_sample);
  return lane;
}

// ---------------------------------------------------------------- the training step --------------
StepRecord Trainer::step() {
  Timeline* timeline = timeline_.get();
  phases_ = {};
  const LaneBatch* batches = nullptr;
  {
    Phase phase(phases_.data, timeline, "wait for data");
    batches = loader_->next();
  }
  reducer_.begin_step();
  for (int i = 0; i < parts_.local_lanes(); ++i) {
    Phase phase(phases_.compute, timeline, "forward and backward");
    const LaneBatch& batch = batches[i];
    executor_.run(
        lane_context(i, batch), batch.input, batch.target, reducer_.lane_gradients(), &reducer_);
    statistics_[static_cast<size_t>(i)] = executor_.statistics();
    reducer_.end_lane();
  }
  StepTotals totals;
  {
    Phase phase(phases_.exchange, timeline, "reduce gradients");
    totals = reducer_.finish(statistics_, stop_requested() ? kStopFlag : 0);
  }
  const Update update = plan_update(totals);
  {
    Phase phase(phases_.optimizer, timeline, "update my slice");
    optimizer_.update(memory_.parameters,
                      reducer_.reduced(),
                      update.lr,
                      update.gradient_scale,
                      progression_.step + 1);
  }
  {
    Phase phase(phases_.exchange, timeline, "gather parameters");
    reducer_.gather(memory_.parameters);
  }
  ++progression_.step;
  stop_agreed_ = (totals.flags & kStopFlag) != 0;
  return make_record(totals, update, now_ms() - step_start_ms_);
}
// -------------------------------------------------------------------------------------------------

Trainer::Update Trainer::plan_update(const StepTotals& totals) const {
  const TrainConfig& train = parts_.config.train;
  const auto rows = static_cast<double>(train.global_batch * parts_.training.loss_rows_per_sample);
  // The gradients are of the loss sum over `rows`; 1 when every row counted.
  const double mean_scale = rows / std::max(totals.valid_count, 1.0);
  Update update;
  update.lr = learning_rate(parts_.config.schedule, progression_.step, train.steps);
  update.gradient_norm = std::sqrt(totals.squared_norm) * mean_scale;
  update.gradient_scale =
      mean_scale * clip_factor(update.gradient_norm, parts_.config.optimizer.clip_norm);
  return update;
}

StepRecord Trainer::make_record(const StepTotals& totals,
                                const Update& update,
                                double step_ms) const {
  const double batch = static_cast<double>(parts_.config.train.global_batch);
  StepRecord record;
  record.step = progression_.step;
  record.samples = progression_.step * parts_.config.train.global_batch;
  record.epoch =
      static_cast<double>(record.samples) / static_cast<double>(parts_.data.train->samples());
  record.loss = totals.loss_sum / std::max(totals.valid_count, 1.0);
  record.lr = update.lr;
  record.grad_norm = update.gradient_norm;
  record.step_ms = step_ms;
  record.compute_ms = phases_.compute;
  record.comm_exposed_ms = phases_.exchange;
  record.data_wait_ms = phases_.data;
  record.optimizer_ms = phases_.optimizer;
  record.samples_per_s = batch / step_ms * 1000;
  if (std::holds_alternative<GptConfig>(parts_.config.model))
    record.tokens_per_s =
        record.samples_per_s * static_cast<double>(parts_.training.loss_rows_per_sample);
  if (peak_flops_ > 0) record.mfu = parts_.flops_per_sample * record.samples_per_s / peak_flops_;
  if (!std::isfinite(record.loss) || !std::isfinite(record.grad_norm))
    throw AgreedError(ExitCode::kNumeric,
                      fmt::format("step {}: loss is {} and the gradient's norm is {}; the last "
                                  "checkpoint is good: resume from it with a lower "
                                  "schedule.lr, more warmup_steps, or optimizer.clip_norm",
                                  record.step,
                                  record.loss,
                                  record.grad_norm));
  return record;
}

void Trainer::start(const TrainOptions& options) {
  if (const auto checkpoint = checkpointer_.choose(options.resume)) {
    progression_ = checkpointer_.restore(*checkpoint);
    spdlog::info("resuming from {} at step {}", checkpoint->string(), progression_.step);
  } else {
    initialize_parameters(parts_.plan.layout, parts_.config.seed, memory_.parameters);
    if (!parts_.config.train.init_from.empty()) {
      run_on_all(parts_.communicator, [&] {
        read_model_file(
            parts_.config.train.init_from, named_slices(parts_.plan.layout), memory_.parameters);
      });
    }
  }
  LoaderOptions loader;
  loader.geometry = parts_.geometry();
  loader.seed = parts_.config.seed;
  loader.shuffle = parts_.config.data.shuffle;
  loader.first_step = progression_.step;
  loader.ring_batches = parts_.train_ring_batches;
  loader_ = std::make_unique<Loader>(*parts_.data.train, loader, memory_.train_batches);
  if (parts_.config.output.timeline) {
    constexpr size_t kTimelineSpans = 65536;
    timeline_ = std::make_unique<Timeline>(parts_.communicator.rank(), kTimelineSpans);
  }
}

TrainResult Trainer::run(const TrainOptions& options) {
  start(options);
  const int64_t end = parts_.config.train.steps;
  const int64_t last = options.max_steps >= 0 ? std::min(options.max_steps, end) : end;
  run_on_root(parts_.communicator,
              [&] { reporter_ = std::make_unique<Reporter>(parts_, progression_.step, last); });
  bool go_on = progression_.step < last;
  step_start_ms_ = now_ms();
  while (go_on) {
    StepRecord record = step();
    result_.train_seconds += record.step_ms / 1000;
    result_.loss = record.loss;
    const Next next = decide(record, record.step == last);
    // Reporting a step counts in the time of the next one; evaluation and checkpoints do not.
    step_start_ms_ = now_ms();
    if (reporter_) reporter_->report(record);
    if (next.save) {
      const double save_start = now_ms();
      save(record);
      step_start_ms_ += now_ms() - save_start;
    }
    result_.weights_hash = record.weights_hash.value_or(0);
    go_on = !next.end;
  }
  if (reporter_) reporter_->finish();
  if (timeline_) {
    const std::vector<std::string> events =
        gather_texts(parts_.communicator, timeline_->events_text());
    run_on_root(parts_.communicator,
                [&] { write_timeline(parts_.run_dir / "timeline.json", events); });
  }
  result_.step = progression_.step;
  if (result_.weights_hash == 0)
    result_.weights_hash = agreed_hash();  // there was no step left to do
  result_.best_metric = progression_.best_metric;
  result_.best_step = progression_.best_step;
  return result_;
}

Trainer::Next Trainer::decide(StepRecord& record, bool last) {
  const RunConfig& config = parts_.config;
  const auto due = [&](int64_t every) { return every > 0 && record.step % every == 0; };
  const bool evaluated = evaluator_ && (due(config.eval.every) || (last && !stop_agreed_));
  if (evaluated) evaluate(record);
  const bool keeps_any = config.checkpoint.every > 0 || config.checkpoint.at_end;
  const bool best = evaluated && progression_.best_step == record.step &&
                    config.checkpoint.keep_best && keeps_any;
  result_.early_stopped = config.eval.early_stop_patience > 0 &&
                          progression_.evals_since_best >= config.eval.early_stop_patience;
  result_.preempted = stop_agreed_ && record.step < config.train.steps;
  Next next;
  next.end = last || result_.early_stopped || stop_agreed_;
  next.save = due(config.checkpoint.every) || best || result_.preempted ||
              (next.end && config.checkpoint.at_end);
  if (next.save || next.end || due(config.train.hash_every)) record.weights_hash = agreed_hash();
  return next;
}

void Trainer::save(const StepRecord& record) {
  Timeline::Span span(timeline_.get(), "checkpoint", "checkpoint");
  if (reporter_) reporter_->flush();
  checkpointer_.save(progression_, *record.weights_hash);
}

void Trainer::evaluate(StepRecord& record) {
  Timeline::Span span(timeline_.get(), "evaluate", "evaluation");
  const Evaluation evaluation = evaluator_->run();
  result_.evaluation = evaluation;
  record.eval_loss = evaluation.loss;
  if (parts_.has_accuracy()) record.eval_accuracy = evaluation.accuracy;
  const bool by_loss = parts_.config.eval.best == EvalConfig::Metric::kLoss;
  const double metric = by_loss ? evaluation.loss : evaluation.accuracy;
  const auto& best = progression_.best_metric;
  const bool better = !best || (by_loss ? metric < *best : metric > *best);
  if (better) {
    progression_.best_metric = metric;
    progression_.best_step = record.step;
    progression_.evals_since_best = 0;
  } else {
    ++progression_.evals_since_best;
  }
}

// The hash of the weights, which every rank computes of its own copy: replicas that differ end the
// run.
uint64_t Trainer::agreed_hash() {
  const size_t ranks = static_cast<size_t>(parts_.communicator.size());
  std::vector<uint64_t> hashes(ranks);
  hashes[static_cast<size_t>(parts_.communicator.rank())] =
      hash_parameters(parts_.plan.layout, memory_.parameters);
  parts_.communicator.all_gather(reinterpret_cast<std::byte*>(hashes.data()), sizeof(uint64_t));
  for (size_t r = 1; r < ranks; ++r) {
    if (hashes[r] == hashes[0]) continue;
    throw AgreedError(
        ExitCode::kNumeric,
        fmt::format("step {}: the weights of rank {} hash to {:016x}, those of rank 0 to {:016x}: "
                    "the replicas have "
                    "diverged (memory or network corruption?); resume from the last checkpoint",
                    progression_.step,
                    r,
                    hashes[r],
                    hashes[0]));
  }
  return hashes[0];
}

}  // namespace lockstep
