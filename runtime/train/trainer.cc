#include "runtime/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "collectives/agreement.h"
#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "runtime/base/log.h"
#include "runtime/base/threads.h"
#include "runtime/base/time.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/metrics/phase_timer.h"
#include "runtime/train/initialize.h"
#include "runtime/train/mixup.h"
#include "runtime/train/schedule.h"
#include "runtime/train/step_parts.h"
#include "runtime/train/stop_signal.h"

namespace lockstep {
namespace {

// Bits of the flags that ranks exchange each step.
constexpr int64_t kStopFlag = 1;

// Of a step: ranks that others wait for so long are named.
constexpr double kWorthNaming = 0.05;

using Span = Timeline::Span;

// A phase of the step: its milliseconds, and a span in the timeline when one is kept.
struct Phase {
  PhaseTimer timer;
  Timeline::Span span;
  Phase(double& sum_ms, Timeline* timeline, const char* name)
      : timer(sum_ms), span(timeline, name, "step") {}
};

}  // namespace

Trainer::Trainer(const RunParts& parts)
    : parts_(parts),
      memory_(allocate_run(parts.backend, parts.plan, parts.node)),
      power_sgd_(make_power_sgd(parts, memory_)),
      reducer_({parts.slices, parts.communicator, parts.node},
               parts.backend,
               reducer_options(parts, memory_, power_sgd_.get()),
               memory_.gradients,
               memory_.staging),
      gather_({parts.slices, parts.communicator, parts.parameters_node()},
              parts.backend,
              parts.plan.topology,
              parts.plan.buckets,
              gather_memory(parts.plan, memory_)),
      sum_all_gather_({parts.slices, parts.communicator},
                      parts.backend,
                      parts.plan.topology,
                      parts.plan.buckets,
                      sum_all_gather_memory(parts.plan, memory_)),
      executor_(parts.training,
                parts.plan.training,
                parts.plan.layout,
                parts.backend,
                {memory_.arena, memory_.gathered, &gather_},
                parts.plan.lanes_together ? parts.local_lanes() : 1),
      tensor_norms_(make_tensor_norms(parts)),
      optimizer_(parts.config.optimizer,
                 parts.plan.layout,
                 parts.updated(),
                 parts.backend,
                 {.weights = weights_of(parts, memory_),
                  .gradients = reducer_.sums(),
                  .moments = memory_.moments,
                  .norms = tensor_norms_.get()}),
      average_(make_average(parts, memory_, optimizer_)),
      checkpointer_(parts, memory_, optimizer_),
      loss_scale_(parts.config),
      weights_hash_(parts, memory_),
      gradient_work_(parts.backend.repeated_work()),
      update_work_(parts.backend.repeated_work()),
      lanes_(parts.backend.host_array<LaneContext>(static_cast<size_t>(parts.local_lanes()))),
      statistics_(parts.backend.host_array<LaneStatistics>(lanes_.size())),
      stage_(parts.training, parts.backend, memory_.device_batches, lanes_.size()),
      batches_(lanes_.size()),
      lane_runs_(lanes_.size()),
      peak_flops_(parts.backend.peak_flops() * parts.communicator.size()) {
  if (parts.evaluation != nullptr)
    evaluator_ = std::make_unique<Evaluator>(parts, memory_, reducer_, &gather_);
}

Trainer::~Trainer() = default;

LaneContext Trainer::lane_context(int local_lane, const LaneBatch& batch) const {
  LaneContext lane;
  lane.seed = parts_.config.seed;
  lane.step = static_cast<uint32_t>(progression_.step);
  lane.lane = static_cast<uint32_t>(reducer_.lanes()[local_lane]);
  lane.valid_rows = batch.valid_samples * parts_.training.loss_rows_per_sample;
  lane.gradient_scale = static_cast<float>(
      loss_scale_.value() /
      static_cast<double>(parts_.config.train.global_batch * parts_.training.loss_rows_per_sample));
  const float mixup = parts_.config.train.mixup;
  if (mixup > 0) lane.mix = draw_mix(mixup, lane.seed, lane.step, lane.lane);
  return lane;
}

// ---------------------------------------------------------------- the training step --------------
StepRecord Trainer::step() {
  Timeline* timeline = spans();
  const double start_ms = timeline != nullptr ? now_ms() : 0;
  phases_ = {};
  if (!stage_.loaded()) load_batches();
  batches_ = stage_.take();
  for (size_t i = 0; i < lanes_.size(); ++i)
    lanes_[i] = lane_context(static_cast<int>(i), batches_[i]);
  reducer_.begin_step();
  gather_.begin_step();
  sum_all_gather_.begin_step();
  if (power_sgd_) power_sgd_->begin_step();
  const double data_ms = phases_.data;
  {
    Phase phase(phases_.compute, timeline, "gradients");
    gradient_work_->run([this] { forward_backward(); });
    if (stage_.ahead() && loader_->ready()) load_batches();  // the next step's
    parts_.backend.synchronize();
    if (timeline_ && queued_exchange()) timeline_->device_reduced(parts_.backend.reduce_ms());
  }
  phases_.compute -= exposed_ms() + phases_.data - data_ms;
  const StepTotals totals = exchange_totals();
  const Update update = plan_update(totals);
  if (update.finite) {
    Phase phase(phases_.optimizer, timeline, "update my slice");
    optimizer_.prepare(update.lr, update.gradient_scale, update.number);
    adapt();
    update_work_->run([this] {
      optimizer_.update();
      if (average_) average_->update();
    });
  }
  ++progression_.step;
  loss_scale_.step_done(update.finite);
  progression_.loss_scale = loss_scale_.state();
  stop_agreed_ = (totals.flags & kStopFlag) != 0;
  if (timeline_) timeline_->step_done(progression_.step, start_ms);
  return make_record(totals, update);
}
// -------------------------------------------------------------------------------------------------

// Brings the ranks together where they need norms of whole tensors.
void Trainer::adapt() {
  if (!tensor_norms_) return;
  tensor_norms_->begin_step();
  optimizer_.adapt();
  together_ms_ = now_ms();
  phases_.exchange += tensor_norms_->exposed_ms();
  phases_.optimizer -= tensor_norms_->exposed_ms();
}

// Ends the exchange. A rank that worked less than the slowest one would have waited as much less
// for it, whatever else it waited for.
StepTotals Trainer::exchange_totals() {
  const double busy_ms = now_ms() - together_ms_ - exposed_ms();
  const StepTotals totals = reducer_.totals(statistics_, stop_requested() ? kStopFlag : 0, busy_ms);
  together_ms_ = now_ms();
  phases_.exchange = exposed_ms();
  phases_.stragglers = std::min(phases_.exchange, totals.slowest_ms - busy_ms);
  return totals;
}

void Trainer::load_batches() {
  Phase phase(phases_.data, spans(), "wait for data");
  stage_.load(*loader_);
}

// What of the exchange nothing has hidden so far: the waits that the host has seen and, where the
// device works from a queue, what it did after the backward pass.
double Trainer::exposed_ms() const {
  return reducer_.exposed_ms() + gather_.exposed_ms() + sum_all_gather_.exposed_ms() +
         (power_sgd_ ? power_sgd_->exposed_ms() : 0) +
         (queued_exchange() ? parts_.backend.reduce_ms() : 0);
}

bool Trainer::queued_exchange() const {
  return parts_.backend.ops().separate_memory && parts_.communicator.size() > 1;
}

void Trainer::run_lanes() {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Span span(spans(), "forward and backward", "step");
    executor_.run(lanes_[i],
                  batches_[i].input,
                  batches_[i].target,
                  reducer_.lane_gradients(),
                  &reducer_,
                  reinterpret_cast<std::byte*>(&statistics_[i]));
    reducer_.end_lane();
  }
}

void Trainer::run_lanes_together() {
  Span span(spans(), "forward and backward", "step");
  for (size_t i = 0; i < lanes_.size(); ++i)
    lane_runs_[i] = {&lanes_[i],
                     batches_[i].input,
                     batches_[i].target,
                     reinterpret_cast<std::byte*>(&statistics_[i])};
  executor_.run_together(lane_runs_, reducer_);
  reducer_.end_lane();
}

// Brings the last step's parameters while the forward pass already runs, and leaves the gradient of
// the global batch in the reducer and each lane's statistics.
void Trainer::forward_backward() {
  if (!parts_.plan.training.gathers_each_run) gather_.start(parts_.plan.training.gathers);
  parts_.plan.lanes_together ? run_lanes_together() : run_lanes();
  Span span(spans(), "reduce gradients", "step");
  parts_.backend.mark(Backend::Mark::kBackwardDone);
  reducer_.reduce();
  if (!parts_.plan.gradient_gathers.empty()) {
    gather_.start(parts_.plan.gradient_gathers);
    gather_.finish();
  }
  if (!parts_.plan.rounded_gathers.empty()) sum_all_gather_.run(parts_.plan.rounded_gathers);
  parts_.backend.mark(Backend::Mark::kReduced);
}

Trainer::Update Trainer::plan_update(const StepTotals& totals) const {
  const TrainConfig& train = parts_.config.train;
  const auto rows = static_cast<double>(train.global_batch * parts_.training.loss_rows_per_sample);
  // The gradients are of the loss sum over `rows`, times the loss scale.
  const double mean_scale = rows / std::max(totals.valid_count, 1.0) / loss_scale_.value();
  Update update;
  update.lr = learning_rate(parts_.config.schedule, progression_.step, train.steps);
  update.gradient_norm = std::sqrt(totals.squared_norm) * mean_scale;
  update.gradient_scale =
      mean_scale * clip_factor(update.gradient_norm, parts_.config.optimizer.clip_norm);
  update.finite = std::isfinite(totals.loss_sum) && std::isfinite(update.gradient_norm);
  update.number = progression_.step - loss_scale_.state().skipped + 1;
  return update;
}

StepRecord Trainer::make_record(const StepTotals& totals, const Update& update) const {
  const double step_ms = now_ms() - step_start_ms_;
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
  record.straggler_ms = phases_.stragglers;
  const double slower_ms = totals.slowest_ms - totals.fastest_ms;
  if (slower_ms > kWorthNaming * step_ms)
    record.slowest = SlowestRank{
        totals.slowest_rank, hosts_[static_cast<size_t>(totals.slowest_rank)].c_str(), slower_ms};
  record.data_wait_ms = phases_.data;
  record.optimizer_ms = phases_.optimizer;
  record.samples_per_s = batch / step_ms * 1000;
  if (parts_.model.input == ModelInput::kTokens)
    record.tokens_per_s =
        record.samples_per_s * static_cast<double>(parts_.training.loss_rows_per_sample);
  if (peak_flops_ > 0) record.mfu = parts_.flops_per_sample * record.samples_per_s / peak_flops_;
  if (loss_scale_.dynamic()) {
    record.loss_scale = loss_scale_.value();
    record.skipped_steps = loss_scale_.state().skipped;
  }
  if (!update.finite && (!loss_scale_.dynamic() || loss_scale_.exhausted()))
    refuse_not_finite(
        record.step,
        fmt::format("loss is {} and the gradient's norm is {}", record.loss, record.grad_norm));
  return record;
}

// Ends the run on all ranks: every one of them has seen the same.
void Trainer::refuse_not_finite(int64_t step, const std::string& what) const {
  const std::string remedy = "a lower schedule.lr, more warmup_steps, or optimizer.clip_norm";
  throw AgreedError(
      ExitCode::kNumeric,
      last_checkpoint_
          ? fmt::format("step {}: {}; the checkpoint of step {} is good: resume from it with {}",
                        step,
                        what,
                        *last_checkpoint_,
                        remedy)
          : fmt::format("step {}: {}, and no checkpoint has been written yet: start again with {}",
                        step,
                        what,
                        remedy));
}

void Trainer::start(const std::string& resume) {
  if (const auto checkpoint = checkpointer_.choose(resume)) {
    progression_ = checkpointer_.restore(*checkpoint);
    loss_scale_.restore(progression_.loss_scale);
    last_checkpoint_ = progression_.step;
    log_info("resuming from {} at step {}", checkpoint->string(), progression_.step);
  } else {
    run_on_all(parts_.communicator, [&] {
      if (parts_.writes_parameters()) begin_weights();
    });
    if (average_) average_->begin();
  }
  LoaderOptions loader;
  loader.geometry = parts_.geometry();
  loader.seed = parts_.config.seed;
  loader.shuffle = parts_.config.data.shuffle;
  loader.first_step = progression_.step;
  loader.ring_batches = parts_.train_ring_batches;
  loader.threads = choose_loader_threads(
      *parts_.data.train, parts_.config.data.decode_threads, compute_threads());
  loader_ = std::make_unique<Loader>(*parts_.data.train, loader, memory_.train_batches);
  hosts_ = gather_texts(parts_.communicator, host_name());
  timeline_ = RunTimeline::make(parts_);
  const auto observe = [&](auto&... tellers) { (tellers.observe(timeline_.get()), ...); };
  observe(reducer_, gather_, sum_all_gather_, executor_);
  if (power_sgd_) observe(*power_sgd_);
  if (tensor_norms_) observe(*tensor_norms_);
}

void Trainer::begin_weights() {
  HostWeights weights(parts_, memory_);
  initialize_parameters(parts_.plan.layout, parts_.config.seed, weights.data());
  if (!parts_.config.train.init_from.empty())
    read_model_file(
        parts_.config.train.init_from, named_slices(parts_.plan.layout), weights.data());
  weights.write();
}

bool Trainer::out_of_patience() const {
  const int64_t patience = parts_.config.eval.early_stop_patience;
  return patience > 0 && progression_.evals_since_best >= patience;
}

TrainResult Trainer::run(int64_t max_steps) {
  const int64_t end = parts_.config.train.steps;
  const int64_t last = max_steps >= 0 ? std::min(max_steps, end) : end;
  run_on_root(parts_.communicator,
              [&] { reporter_ = std::make_unique<Reporter>(parts_, progression_.step, last); });
  result_.early_stopped = out_of_patience();
  bool go_on = progression_.step < last && !result_.early_stopped;
  RunTimes times(last - progression_.step);
  step_start_ms_ = together_ms_ = now_ms();
  while (go_on) {
    StepRecord record = step();
    result_.train_seconds += record.step_ms / 1000;
    result_.loss = record.loss;
    times.add(record);
    const Next next = decide(record, record.step == last);
    // What brings the ranks together again.
    if (record.eval_loss || record.weights_hash) together_ms_ = now_ms();
    // Reporting a step counts in the time of the next one; evaluation and checkpoints do not.
    step_start_ms_ = now_ms();
    if (reporter_) reporter_->report(record, next.save);
    if (next.save) {
      const double save_start = now_ms();
      save(record);
      step_start_ms_ += now_ms() - save_start;
      together_ms_ = now_ms();
    }
    result_.weights_hash = record.weights_hash.value_or(0);
    go_on = !next.end;
  }
  if (reporter_) reporter_->finish();
  if (timeline_ && result_.loss) timeline_->write(hosts_);  // else that of the run before stays
  result_.step = progression_.step;
  if (result_.weights_hash == 0)
    result_.weights_hash = agreed_hash();  // there was no step left to do
  result_.rank_times = times.gather(parts_.communicator, hosts_);
  result_.best_metric = progression_.best_metric;
  result_.best_step = progression_.best_step;
  return result_;
}

std::vector<double> Trainer::time_steps(int64_t steps) {
  std::vector<double> times;
  together_ms_ = now_ms();
  while (static_cast<int64_t>(times.size()) < steps && !stop_agreed_) {
    step_start_ms_ = now_ms();
    times.push_back(step().step_ms);
  }
  parts_.backend.synchronize();
  return times;
}

Trainer::Next Trainer::decide(StepRecord& record, bool last) {
  const RunConfig& config = parts_.config;
  const auto due = [&](int64_t every) { return every > 0 && record.step % every == 0; };
  const bool end_of_run = record.step == config.train.steps;
  const bool evaluated =
      evaluator_ && (due(config.eval.every) || end_of_run || (last && !stop_agreed_));
  if (evaluated) {
    complete_weights();
    evaluate(record);
  }
  // An evaluation only because this process ends here changes nothing: the run goes on as if it had
  // not been interrupted.
  if (evaluated && (due(config.eval.every) || end_of_run)) judge(*result_.evaluation, record.step);
  const bool keeps_any = config.checkpoint.every > 0 || config.checkpoint.at_end;
  const bool best = evaluated && progression_.best_step == record.step &&
                    config.checkpoint.keep_best && keeps_any;
  result_.early_stopped = out_of_patience();
  result_.preempted = stop_agreed_ && record.step < config.train.steps;
  Next next;
  next.end = last || result_.early_stopped || stop_agreed_;
  next.save = due(config.checkpoint.every) || best || result_.preempted ||
              (next.end && config.checkpoint.at_end);
  if (next.save || next.end || due(config.train.hash_every)) record.weights_hash = agreed_hash();
  return next;
}

void Trainer::save(const StepRecord& record) {
  Span span(spans(), "checkpoint", "checkpoint");
  if (reporter_) reporter_->flush();
  checkpointer_.save(progression_, *record.weights_hash);
  last_checkpoint_ = record.step;
  log_record(fmt::format(
      "step {}: checkpoint written, weights_hash {:016x}", record.step, *record.weights_hash));
}

void Trainer::evaluate(StepRecord& record) {
  Span span(spans(), "evaluate", "evaluation");
  swap_average();
  const Evaluation evaluation = evaluator_->run();
  swap_average();
  result_.evaluation = evaluation;
  record.eval_loss = evaluation.loss;
  if (parts_.model.has_accuracy()) record.eval_accuracy = evaluation.accuracy;
  if (!std::isfinite(evaluation.loss))
    refuse_not_finite(record.step, fmt::format("the evaluation's loss is {}", evaluation.loss));
  log_record(fmt::format("step {}: loss {:.6f}, evaluation loss {:.6f}, accuracy {:.4f}",
                         record.step,
                         record.loss,
                         evaluation.loss,
                         evaluation.accuracy));
}

// Gives every rank the average of the weights in their place, and then the weights back.
void Trainer::swap_average() {
  if (!average_) return;
  average_->swap();
  complete_weights();
}

// Best so far, and how long ago.
void Trainer::judge(const Evaluation& evaluation, int64_t step) {
  const bool by_loss = parts_.config.eval.best == EvalConfig::Metric::kLoss;
  const double metric = by_loss ? evaluation.loss : evaluation.accuracy;
  const auto& best = progression_.best_metric;
  const bool better = !best || (by_loss ? metric < *best : metric > *best);
  if (better) {
    progression_.best_metric = metric;
    progression_.best_step = step;
    progression_.evals_since_best = 0;
  } else {
    ++progression_.evals_since_best;
  }
}

// Brings every rank's part of the last update to all, where no step follows that would.
void Trainer::complete_weights() {
  if (parts_.plan.training.gathers_each_run) return;  // nobody has all
  gather_.start(parts_.plan.training.gathers);
  gather_.finish();
}

// The hash of the weights; replicas that differ end the run.
uint64_t Trainer::agreed_hash() {
  complete_weights();
  const WeightsHash::Result mine = weights_hash_.take();
  std::vector<uint64_t> replicas(static_cast<size_t>(parts_.communicator.size()));
  replicas[static_cast<size_t>(parts_.communicator.rank())] = mine.replica;
  parts_.communicator.all_gather(reinterpret_cast<std::byte*>(replicas.data()), sizeof(uint64_t));
  for (size_t r = 1; r < replicas.size(); ++r) {
    if (replicas[r] == replicas[0]) continue;
    throw AgreedError(
        ExitCode::kNumeric,
        fmt::format("step {}: the weights of rank {} hash to {:016x}, those of rank 0 to {:016x}: "
                    "the replicas have "
                    "diverged (memory or network corruption?); resume from the last checkpoint",
                    progression_.step,
                    r,
                    replicas[r],
                    replicas[0]));
  }
  if (!mine.finite) {
    HostWeights weights(parts_, memory_);
    refuse_not_finite(
        progression_.step,
        fmt::format("{} is not finite", first_not_finite(parts_.plan.layout, weights.read())));
  }
  return mine.weights;
}

}  // namespace lockstep
