// One training step, and what overlaps with what.
//
//   computation  [forward and backward of each lane in turn .........]          [update slice]
//   exchange     [gather parameters][... reduce bucket 0, 1, 2 ...    ][totals]
//   loader       [read the next step's batches, and copy them to the device]
//
// Gather. An update changes only this rank's slice. The other slices are gathered during the next
// forward pass: each op waits only for the buckets that it reads (plan/gathers.cc). So a step
// begins before its parameters have arrived.
// Reduce. When an op of the backward pass completes a bucket, the executor hands it to the reducer,
// which exchanges it while earlier layers are still being differentiated. Sums over the rank's own
// lanes come first, so with ZeRO 0 and 1 buckets are exchanged during the last lane only, with ZeRO
// 2 and 3 during every lane. reducer_.reduce() waits for the rest; that wait is exposed.
// Totals. Loss, gradient norm, flags and digests of all ranks. This collective is never hidden,
// because what follows depends on it: clipping, a skipped step, damage, a stop. All ranks see the
// same totals and so take the same branch.
//
// Invariants. Weights, moments and loss scale do not change before the totals, so a damaged or
// diverged step has updated nothing and can be computed again. Only the residuals of compressed
// gradients change earlier. flags() is called before the update and waits until a checkpoint has
// copied the state. The work queued by queue_gradients() and by the update may be recorded once and
// replayed (RepeatedWork): values that change from step to step must be read from a host_array().
// Times. Waits for other ranks and for data are subtracted from the compute phase, so that the
// phases of a step add up.
#include "runtime/train/step/training_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/flight_recorder.h"
#include "runtime/base/threads.h"
#include "runtime/metrics/phase_timer.h"
#include "runtime/train/step/mixup.h"
#include "runtime/train/step/schedule.h"
#include "runtime/train/step/step_parts.h"

namespace lockstep {
namespace {

// Ranks that make others wait for this share of a step are named in the record.
constexpr double kReportThreshold = 0.05;

using Span = Timeline::Span;

// The divisor of the sum of losses: rows, or their weights.
double counted(const StepTotals& totals) { return totals.valid_count > 0 ? totals.valid_count : 1; }

// The gradients are of the loss sum divided by the rows of a batch, times the loss scale.
double scale_to_mean(const RunContext& context, const StepTotals& totals, double loss_scale) {
  const auto rows = static_cast<double>(context.config.train.global_batch *
                                        context.training.loss_rows_per_sample);
  return rows / counted(totals) / loss_scale;
}

bool has_squares(const OptimizerConfig& optimizer) {
  const std::vector<std::string> moments = moment_names(optimizer);
  return std::ranges::find(moments, "exp_avg_sq") != moments.end();
}

bool is_same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Tokens of a training sample on average, without padding; 0 if samples are not texts.
double tokens_per_sample(const RunContext& context) {
  if (context.model.input != ModelInput::kTokens) return 0;
  const Dataset& dataset = *context.data.train;
  int64_t tokens = 0;
  for (int64_t i = 0; i < dataset.samples(); ++i) {
    const int64_t length = dataset.length(i);
    if (length == 0) return static_cast<double>(context.model.context);  // no sample is padded
    tokens += length;
  }
  return static_cast<double>(tokens) / static_cast<double>(dataset.samples());
}

// A phase of the step: adds its milliseconds, and records a span if there is a timeline.
struct Phase {
  PhaseTimer timer;
  Timeline::Span span;
  Phase(double& sum_ms, Timeline* timeline, const char* name)
      : timer(sum_ms), span(timeline, name, "step") {}
};

}  // namespace

TrainingStep::TrainingStep(const RunContext& context, const RunMemory& memory)
    : context_(context),
      power_sgd_(make_power_sgd(context, memory)),
      reducer_({context.slices, context.communicator, context.node},
               context.backend,
               reducer_options(context, memory, power_sgd_.get()),
               memory.gradients,
               memory.staging),
      parameter_gather_({context.slices, context.communicator, context.parameters_node()},
                        context.backend,
                        context.plan.topology,
                        context.plan.all_buckets(),
                        gather_memory(context.plan, memory)),
      sum_gather_({context.slices, context.communicator},
                  context.backend,
                  context.plan.topology,
                  context.plan.buckets,
                  sum_all_gather_memory(context.plan, memory)),
      executors_({context.training, context.plan.training},
                 context.length_buckets.training,
                 context.plan.length_bucket_training,
                 context.plan.layout,
                 context.backend,
                 {.arena = memory.arena,
                  .parameters = memory.gathered,
                  .gather = &parameter_gather_,
                  .constants = memory.constants},
                 context.plan.interleaved_lanes ? context.local_lanes() : 1),
      tensor_norms_(make_tensor_norms(context)),
      muon_(make_muon(context, memory, reducer_.sums())),
      optimizer_(context.config.optimizer,
                 context.plan.layout,
                 context.updated(),
                 context.backend,
                 {.weights = weights_of(context, memory),
                  .gradients = reducer_.sums(),
                  .moments = memory.moments,
                  .norms = tensor_norms_.get(),
                  .muon = muon_.get(),
                  .checksummed = context.config.guard.enabled,
                  .seed = context.config.seed}),
      average_(make_average(context, memory, optimizer_)),
      checks_(context, memory, optimizer_.state_checksums()),
      loss_scale_(context.config),
      squares_gradients_(has_squares(context.config.optimizer)),
      gradient_work_(make_recordings(context.backend, executors_.size(), context.local_lanes())),
      update_work_(context.backend.repeated_work()),
      lanes_(context.backend.host_array<LaneContext>(static_cast<size_t>(context.local_lanes()))),
      statistics_(context.backend.host_array<LaneStatistics>(lanes_.size())),
      train_batches_(memory.train_batches),
      stage_(context.training, context.backend, memory.device_batches, lanes_.size()),
      batches_(lanes_.size()),
      lane_runs_(lanes_.size()),
      peak_flops_(context.backend.peak_flops() * context.communicator.size()),
      sample_tokens_(tokens_per_sample(context)),
      gradient_checksums_(reducer_.bit_checksums().size()) {
  FlightRecorder::here().name_buckets(context.plan.bucket_names());
}

// ---------------------------------------------------------------- the training step --------------
TrainingStep::Outcome TrainingStep::run(int64_t done, const std::function<int64_t()>& flags) {
  const double start_ms = now_ms();
  FlightRecorder::here().begin_step(done);
  checks_.begin_step(done);
  take_batches(done);
  forward_backward();  // of my lanes; leaves the gradient of the global batch in my slices
  const StepTotals totals = totals_ = exchange_totals(flags());
  step_loss_scale_ = loss_scale_.value();
  if (damaged(totals)) return {.flags = totals.flags, .damaged = true};
  const Update update = plan_update(done, totals);
  if (update.finite) update_my_slice(update);
  loss_scale_.step_done(update.finite);
  if (timeline_ != nullptr) timeline_->step_done(done + 1, start_ms);
  return {.record = make_record(done + 1, totals, update),
          .flags = totals.flags,
          .diverged = !update.finite && !smaller_scale_helps(totals)};
}
// -------------------------------------------------------------------------------------------------

void TrainingStep::take_batches(int64_t done) {
  clock_.phases = {};
  if (!stage_.loaded()) load_batches();
  batches_ = stage_.take();
  for (size_t i = 0; i < lanes_.size(); ++i)
    lanes_[i] = lane_context(done, static_cast<int>(i), batches_[i]);
}

void TrainingStep::load_batches() {
  const FlightScope loading(FlightPhase::kLoading);
  Phase phase(clock_.phases.data, spans(), "wait for data");
  stage_.load(*loader_);
}

LaneContext TrainingStep::lane_context(int64_t done, int local_lane, const LaneBatch& batch) const {
  LaneContext lane;
  lane.seed = context_.config.seed;
  lane.step = static_cast<uint32_t>(done);
  lane.lane = static_cast<uint32_t>(reducer_.lanes()[local_lane]);
  lane.valid_rows =
      batch.valid_samples * executors_.planned(batch.tokens).graph.loss_rows_per_sample;
  lane.first_sample = lane.lane * context_.geometry().lane_batch;
  lane.gradient_scale = static_cast<float>(
      loss_scale_.value() / static_cast<double>(context_.config.train.global_batch *
                                                context_.training.loss_rows_per_sample));
  const float mixup = context_.config.train.mixup;
  if (mixup > 0) lane.mix = draw_mix(mixup, lane.seed, lane.step, lane.lane);
  return lane;
}

void TrainingStep::begin_exchanges(TransferChecksums* checked) {
  reducer_.begin_step(checked);
  parameter_gather_.begin_step();
  sum_gather_.begin_step();
  if (power_sgd_) power_sgd_->begin_step();
}

void TrainingStep::forward_backward() {
  begin_exchanges(checks_.sent_gradients());
  StepClock::Phases& phases = clock_.phases;
  const double data_ms = phases.data;
  {
    Phase phase(phases.compute, spans(), "gradients");
    if (RepeatedWork* const recorded = recorded_gradients()) {
      recorded->run([this] { queue_gradients(); });
    } else {
      queue_gradients();
    }
    if (stage_.ahead() && loader_->ready()) load_batches();  // the next step's
    context_.backend.synchronize();
    if (timeline_ != nullptr && queued_exchange())
      timeline_->device_reduced(context_.backend.reduce_ms());
  }
  phases.compute -= exposed_ms() + phases.data - data_ms;
}

// The recording for these lengths of the lanes; null if there is none, or if this step's work is
// not the usual one.
RepeatedWork* TrainingStep::recorded_gradients() {
  if (checks_.checks_transfers() || gradient_work_.empty()) return nullptr;
  size_t number = 0;
  for (const LaneBatch& batch : batches_)
    number = number * executors_.size() + executors_.fit(batch.tokens);
  return gradient_work_[number].get();
}

// The last update's parameters are gathered while the forward pass already runs. Leaves the
// gradient of the global batch in the reducer, and each lane's statistics in statistics_.
void TrainingStep::queue_gradients() {
  GatheredChecksums* const gathered = checks_.gathered();
  const bool in_place = !context_.plan.training.gathers_each_run;
  if (gathered != nullptr && !in_place)
    parameter_gather_.on_arrival(
        [=](int bucket, const std::byte* at) { gathered->add(bucket, at); });
  start_gather();
  context_.plan.interleaved_lanes ? run_interleaved_lanes() : run_lanes();
  Span span(spans(), "reduce gradients", "step");
  context_.backend.mark(Backend::Mark::kBackwardDone);
  reducer_.reduce();
  if (!context_.plan.gradient_gathers.empty()) {
    parameter_gather_.start(context_.plan.gradient_gathers);
    parameter_gather_.finish();
  }
  if (!context_.plan.rounded_gathers.empty()) sum_gather_.run(context_.plan.rounded_gathers);
  if (gathered != nullptr && in_place) gathered->add_all();
  parameter_gather_.on_arrival(nullptr);
  context_.backend.mark(Backend::Mark::kReduced);
}

// Unless the work is recorded, parameters that are already there are not gathered again. So nothing
// writes to memory from which a checkpoint is being copied.
void TrainingStep::start_gather() {
  if (context_.plan.training.gathers_each_run) return;
  if (parameters_gathered_ && !context_.backend.ops().separate_memory) {
    parameter_gather_.skip(context_.plan.training.gathers);
  } else {
    parameter_gather_.start(context_.plan.training.gathers);
  }
}

void TrainingStep::run_lanes() {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Span span(spans(), "forward and backward", "step");
    executors_.of(batches_[i].tokens)
        .run(lanes_[i],
             batches_[i].input,
             batches_[i].target,
             reducer_.lane_gradients(),
             &reducer_,
             reinterpret_cast<std::byte*>(&statistics_[i]));
    reducer_.end_lane();
  }
}

void TrainingStep::run_interleaved_lanes() {
  Span span(spans(), "forward and backward", "step");
  for (size_t i = 0; i < lanes_.size(); ++i)
    lane_runs_[i] = {&lanes_[i],
                     batches_[i].input,
                     batches_[i].target,
                     reinterpret_cast<std::byte*>(&statistics_[i])};
  executors_.full_context().run_together(lane_runs_, reducer_);
  reducer_.end_lane();
}

// Ends the exchange. If this rank was less busy than the slowest one, it spent the difference
// waiting for it, whatever else it waited for.
StepTotals TrainingStep::exchange_totals(int64_t flags) {
  const double busy_ms = now_ms() - clock_.met_ms - exposed_ms();
  if (!checks_.examine(now_ms() - clock_.start_ms)) flags |= kDamaged;
  const StepTotals totals = reducer_.totals(
      statistics_, {.flags = flags, .digest = checks_.digest().value_or(0), .busy_ms = busy_ms});
  clock_.ranks_met();
  clock_.phases.exchange = exposed_ms();
  clock_.phases.stragglers = std::min(clock_.phases.exchange, totals.slowest_ms - busy_ms);
  return totals;
}

// Ranks that all update everything must have the same state.
bool TrainingStep::damaged(const StepTotals& totals) const {
  return (totals.flags & kDamaged) != 0 ||
         (!context_.plan.shards_optimizer && totals.digests_differ);
}

TrainingStep::Update TrainingStep::plan_update(int64_t done, const StepTotals& totals) const {
  const TrainConfig& train = context_.config.train;
  const double mean_scale = scale_to_mean(context_, totals, loss_scale_.value());
  Update update;
  update.lr = learning_rate(context_.config.schedule, done, train.steps, rate_falls_);
  update.gradient_norm = std::sqrt(totals.squared_norm) * mean_scale;
  update.gradient_scale =
      mean_scale * clip_factor(update.gradient_norm, context_.config.optimizer.clip_norm);
  update.finite = std::isfinite(totals.loss_sum) && std::isfinite(update.gradient_norm) &&
                  !moments_overflow(update.gradient_norm);
  update.number = done - loss_scale_.state().skipped + 1;
  return update;
}

// Whether a moment that averages squares could become infinite, which would freeze its parameter.
bool TrainingStep::moments_overflow(double gradient_norm) const {
  const double clipped =
      gradient_norm * clip_factor(gradient_norm, context_.config.optimizer.clip_norm);
  return squares_gradients_ && clipped * clipped > std::numeric_limits<float>::max();
}

// The loss of a pass in FP32 does not depend on the scale. FP16 activations may overflow in single
// batches, which are skipped.
bool TrainingStep::smaller_scale_helps(const StepTotals& totals) const {
  const bool loss_overflows =
      !std::isfinite(totals.loss_sum) && context_.plan.compute == DType::kF32;
  return loss_scale_.dynamic() && !loss_scale_.exhausted() && !loss_overflows;
}

void TrainingStep::update_my_slice(const Update& update) {
  Phase phase(clock_.phases.optimizer, spans(), "update my slice");
  parameters_gathered_ = false;
  optimizer_.prepare(update.lr, update.gradient_scale, update.number);
  if (StateChecksums* checksums = checks_.state()) {
    std::ranges::copy(reducer_.bit_checksums(), gradient_checksums_.begin());
    const bool summed_here = context_.plan.shards_optimizer || context_.communicator.size() == 1;
    checksums->update_follows(summed_here ? gradient_checksums_ : std::span<const uint32_t>());
  }
  adapt_update();
  update_work_->run([this] {
    optimizer_.update();
    if (average_) average_->update();
  });
}

// The ranks exchange norms of whole tensors, or pieces of matrices.
void TrainingStep::adapt_update() {
  const auto adapt = [&](auto& exchanged) {
    exchanged.begin_step();
    optimizer_.adapt();
    clock_.ranks_met();
    clock_.phases.exchange += exchanged.exposed_ms();
    clock_.phases.optimizer -= exchanged.exposed_ms();
  };
  if (tensor_norms_) adapt(*tensor_norms_);
  if (muon_) adapt(*muon_);
}

StepRecord TrainingStep::make_record(int64_t step,
                                     const StepTotals& totals,
                                     const Update& update) const {
  const double step_ms = now_ms() - clock_.start_ms;
  const double batch = static_cast<double>(context_.config.train.global_batch);
  StepRecord record;
  record.step = step;
  record.samples = step * context_.config.train.global_batch;
  record.epoch =
      static_cast<double>(record.samples) / static_cast<double>(context_.data.train->samples());
  record.loss = totals.loss_sum / counted(totals);
  record.lr = update.lr;
  record.grad_norm = update.gradient_norm;
  record.step_ms = step_ms;
  record.compute_ms = clock_.phases.compute;
  record.comm_exposed_ms = clock_.phases.exchange;
  record.straggler_ms = clock_.phases.stragglers;
  const double slower_ms = totals.slowest_ms - totals.fastest_ms;
  if (slower_ms > kReportThreshold * step_ms)
    record.slowest = SlowestRank{
        totals.slowest_rank, hosts_[static_cast<size_t>(totals.slowest_rank)].c_str(), slower_ms};
  record.data_wait_ms = clock_.phases.data;
  record.optimizer_ms = clock_.phases.optimizer;
  record.samples_per_s = batch / step_ms * 1000;
  if (sample_tokens_ > 0) record.tokens_per_s = record.samples_per_s * sample_tokens_;
  if (peak_flops_ > 0)
    record.mfu = computed_share() * context_.flops_per_sample * record.samples_per_s / peak_flops_;
  if (loss_scale_.dynamic()) record.loss_scale = loss_scale_.value();
  record.skipped_steps = loss_scale_.state().skipped;
  if (checks_.digest())
    record.state_digest = context_.plan.shards_optimizer ? totals.digest_sum : totals.digest;
  return record;
}

// The share of the full-length work that was computed. This rank's lanes stand for all lanes.
double TrainingStep::computed_share() const {
  double flops = 0;
  for (const LaneBatch& batch : batches_)
    flops += static_cast<double>(executors_.planned(batch.tokens).plan.flops);
  return flops / static_cast<double>(batches_.size()) /
         static_cast<double>(context_.plan.training.flops);
}

// The part of the exchange that is not hidden so far: the host's waits and, on a device that works
// from a queue, the device's time after the backward pass.
double TrainingStep::exposed_ms() const {
  return reducer_.exposed_ms() + parameter_gather_.exposed_ms() + sum_gather_.exposed_ms() +
         (power_sgd_ ? power_sgd_->exposed_ms() : 0) +
         (queued_exchange() ? context_.backend.reduce_ms() : 0);
}

bool TrainingStep::queued_exchange() const {
  return context_.backend.ops().separate_memory && context_.communicator.size() > 1;
}

void TrainingStep::start(int64_t done, std::span<const std::string> hosts, RunTimeline* timeline) {
  LoaderOptions loader;
  loader.geometry = context_.geometry();
  loader.seed = context_.config.seed;
  loader.shuffle = context_.config.data.shuffle;
  loader.first_step = done;
  loader.ring_batches = context_.train_ring_batches;
  loader.threads = choose_loader_threads(
      *context_.data.train, context_.config.data.decode_threads, compute_threads());
  loader_.reset();  // the previous one writes to the same memory
  stage_.drop_loaded();
  loader_ = std::make_unique<Loader>(*context_.data.train, loader, train_batches_);
  hosts_ = hosts;
  timeline_ = timeline;
  parameters_gathered_ = false;
  checks_.begin();
  const auto observe = [&](auto&... observed) { (observed.observe(timeline), ...); };
  observe(reducer_, parameter_gather_, sum_gather_, executors_);
  if (power_sgd_) observe(*power_sgd_);
  if (tensor_norms_) observe(*tensor_norms_);
  if (muon_) observe(*muon_);
}

void TrainingStep::gather_parameters() {
  if (context_.plan.training.gathers_each_run) return;  // no rank holds all
  parameter_gather_.start(context_.plan.training.gathers);
  parameter_gather_.finish();
  parameters_gathered_ = true;
}

TrainingStep::Repeated TrainingStep::compute_again(OpObserver& observer) {
  executors_.observe(&observer);
  begin_exchanges(nullptr);
  queue_gradients();
  context_.backend.synchronize();
  executors_.observe(timeline_);
  const StepTotals again = reducer_.totals(statistics_, {});
  Repeated repeated;
  repeated.loss = again.loss_sum / counted(again);
  repeated.grad_norm =
      std::sqrt(again.squared_norm) * scale_to_mean(context_, again, step_loss_scale_);
  repeated.same = is_same(again.loss_sum, totals_.loss_sum) &&
                  is_same(again.squared_norm, totals_.squared_norm);
  repeated.finite = std::isfinite(repeated.loss) && std::isfinite(repeated.grad_norm);
  repeated.moments_overflow = moments_overflow(repeated.grad_norm);
  return repeated;
}

void TrainingStep::swap_average() {
  if (!average_) return;
  average_->swap();
  gather_parameters();
}

}  // namespace lockstep
