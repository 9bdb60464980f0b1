#include "runtime/train/step/step_update.h"

#include <algorithm>
#include <cmath>

#include "runtime/train/step/schedule.h"

namespace lockstep::train {
namespace {

FlatWeights weights_of(const RunContext& context, const RunMemory& memory) {
  return {memory.parameters,
          context.plan.layout.compute,
          memory.masters,
          context.plan.sharding.shards_parameters()};
}

// Whether some buckets are updated during the next forward pass, when their sums have arrived.
bool updates_later(const plan::Plan& plan) {
  return !plan.sharding.shards_optimizer() && !plan.programs.training.gathers.empty();
}

// The device's gate, unless the host has to compute something between the gradients and the update.
exec::UpdateGate* gate_of(const RunContext& context) {
  const bool adapts = is_layer_wise(context.config.optimizer) || context.plan.traffic.muon;
  return adapts ? nullptr : context.backend.update_gate();
}

exec::UpdateRule rule_of(const RunContext& context) {
  const OptimizerConfig& optimizer = context.config.optimizer;
  return {.rows = static_cast<double>(context.config.train.global_batch *
                                      context.graphs.training.loss_rows_per_sample),
          .clip_norm = optimizer.clip_norm,
          .squares = !squares_moment(optimizer).empty()};
}

}  // namespace

// The divisor is the number of rows, or the sum of their weights.
double mean_loss(const collectives::StepSums& sums) {
  return sums.loss_sum / (sums.valid_count > 0 ? sums.valid_count : 1);
}

StepUpdate::StepUpdate(const RunContext& context,
                       const RunMemory& memory,
                       StepExchange& exchange,
                       StepClock& clock)
    : context_(context),
      exchange_(exchange),
      clock_(clock),
      gate_(gate_of(context)),
      tensor_norms_(is_layer_wise(context.config.optimizer)
                        ? std::make_unique<TensorNorms>(
                              context.plan,
                              adapted_tensors(context.config.optimizer, context.plan.layout),
                              context.communicator,
                              context.backend)
                        : nullptr),
      muon_(context.plan.traffic.muon
                ? std::make_unique<MuonDirections>(
                      context.plan, context.slices, context.backend, exchange.sums(), memory.muon)
                : nullptr),
      factored_(context.plan.traffic.adafactor
                    ? std::make_unique<FactoredAverages>(*context.plan.traffic.adafactor,
                                                         context.communicator,
                                                         context.backend,
                                                         memory.factored_sums,
                                                         memory.factored_averages)
                    : nullptr),
      optimizer_(context.config.optimizer,
                 context.plan.layout,
                 context.updated(),
                 context.backend,
                 {.weights = weights_of(context, memory),
                  .gradients = exchange.sums(),
                  .moments = memory.moments,
                  .norms = tensor_norms_.get(),
                  .muon = muon_.get(),
                  .factored = factored_.get(),
                  .by_range = updates_later(context.plan),
                  .gated = gate_ != nullptr,
                  .checksummed = context.config.guard.enabled,
                  .seed = context.config.seed}),
      average_(context.config.train.ema_decay != 0
                   ? std::make_unique<WeightAverage>(
                         context.config.train.ema_decay,
                         optimizer_.pieces(),
                         context.backend,
                         weights_of(context, memory),
                         reinterpret_cast<float*>(  // behind the moments
                             memory.moments + optimizer_.moment_begin(optimizer_.moments())),
                         optimizer_.state_checksums(),
                         gate_ != nullptr)
                   : nullptr),
      loss_scale_(context.config),
      rule_(rule_of(context)),
      work_(context.backend.repeated_work()),
      gradient_checksums_(exchange.bit_checksums().size()) {}

void StepUpdate::observe(RunTimeline* timeline) {
  if (tensor_norms_) tensor_norms_->observe(timeline);
  if (muon_) muon_->observe(timeline);
  if (factored_) factored_->observe(timeline);
}

PlannedUpdate StepUpdate::next(int64_t done) const {
  return {
      .lr = learning_rate(context_.config.schedule, done, context_.config.train.steps, rate_falls_),
      .number = done - loss_scale_.state().skipped + 1};
}

PlannedUpdate StepUpdate::plan(int64_t done, const collectives::StepSums& sums) {
  rule_.loss_scale = loss_scale_.value();
  const exec::UpdateDecision decision = decide(sums);
  PlannedUpdate update = next(done);
  update.gradient_norm = decision.gradient_norm;
  update.gradient_scale = decision.gradient_scale;
  update.clipped_norm = std::sqrt(sums.squared_norm) * decision.gradient_scale;
  update.finite = decision.finite;
  return update;
}

exec::UpdateDecision StepUpdate::decide(const collectives::StepSums& sums) const {
  return exec::decide(rule_, sums);
}

// The loss of a pass in FP32 does not depend on the scale. FP16 activations may overflow in single
// batches, which are skipped.
bool StepUpdate::smaller_scale_helps(const collectives::StepSums& sums) const {
  const bool loss_overflows =
      !std::isfinite(sums.loss_sum) && context_.plan.layout.compute == DType::kF32;
  return loss_scale_.dynamic() && !loss_scale_.exhausted() && !loss_overflows;
}

void StepUpdate::apply(const PlannedUpdate& update) {
  const auto timed = clock_.time(&StepClock::Phases::optimizer, "update my slice");
  prepare(update);
  if (gate_ != nullptr) gate_->open(static_cast<float>(update.gradient_scale));
  if (updates_later(context_.plan)) return update_by_bucket();
  adapt();
  update_slice();
}

void StepUpdate::queue(int64_t done, std::span<const collectives::LaneStatistics> statistics) {
  const auto timed = clock_.time(&StepClock::Phases::optimizer, "update my slice");
  rule_.loss_scale = loss_scale_.value();
  gate_->sums();  // the constants of the last update are on the device, also if the host decided
  prepare(next(done));
  gate_->decide(exchange_.gather_sums(statistics), rule_);
  update_slice();
}

void StepUpdate::prepare(const PlannedUpdate& update) {
  exchange_.parameters_changed();
  optimizer_.prepare(update.lr, update.gradient_scale, update.number, update.clipped_norm);
  StateChecksums* const checksums = optimizer_.state_checksums();
  if (checksums == nullptr) return;
  std::ranges::copy(exchange_.bit_checksums(), gradient_checksums_.begin());
  const bool summed_here =
      context_.plan.sharding.shards_optimizer() || context_.communicator.size() == 1;
  checksums->update_follows(summed_here ? gradient_checksums_ : std::span<const uint32_t>());
}

void StepUpdate::update_slice() {
  work_->run([this] {
    optimizer_.update();
    if (average_) average_->update();
  });
}

// Updates the buckets whose sums are there, while the gathers of the others begin.
void StepUpdate::update_by_bucket() {
  exchange_.start_later_sums([this](int bucket) {
    const auto timed = clock_.time(&StepClock::Phases::optimizer, "update a bucket");
    optimizer_.update(static_cast<size_t>(bucket));
  });
  const plan::TrafficPlan::SumGathers& at_once = context_.plan.traffic.sum_gathers;
  for (const auto* const items : {&at_once.rounded, &at_once.floats}) {
    for (const collectives::GatherItem& item : *items) {
      optimizer_.update(static_cast<size_t>(item.bucket));
      exchange_.forward_gather().progress();
    }
  }
}

// The ranks exchange norms of whole tensors, pieces of matrices, or sums over rows and columns.
void StepUpdate::adapt() {
  const auto each = [&](auto f) {
    if (tensor_norms_) f(*tensor_norms_);
    if (muon_) f(*muon_);
    if (factored_) f(*factored_);
  };
  if (!tensor_norms_ && !muon_) return;
  each([](auto& exchanged) { exchanged.begin_step(); });
  optimizer_.adapt();
  clock_.ranks_met();
  each([&](auto& exchanged) {
    clock_.phases.exchange += exchanged.exposed_ms();
    clock_.phases.optimizer -= exchanged.exposed_ms();
  });
}

}  // namespace lockstep::train
