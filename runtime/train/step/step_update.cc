#include "runtime/train/step/step_update.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

// The divisor of the sum of losses: rows, or their weights.
double counted(const collectives::StepTotals& totals) {
  return totals.valid_count > 0 ? totals.valid_count : 1;
}

}  // namespace

double mean_loss(const collectives::StepTotals& totals) {
  return totals.loss_sum / counted(totals);
}

StepUpdate::StepUpdate(const RunContext& context,
                       const RunMemory& memory,
                       StepExchange& exchange,
                       StepClock& clock)
    : context_(context),
      exchange_(exchange),
      clock_(clock),
      tensor_norms_(is_layer_wise(context.config.optimizer)
                        ? std::make_unique<TensorNorms>(
                              context.plan,
                              adapted_slots(context.config.optimizer, context.plan.layout),
                              context.communicator,
                              context.backend)
                        : nullptr),
      muon_(context.plan.traffic.muon
                ? std::make_unique<MuonDirections>(
                      context.plan, context.slices, context.backend, exchange.sums(), memory.muon)
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
                  .by_range = updates_later(context.plan),
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
                         optimizer_.state_checksums())
                   : nullptr),
      loss_scale_(context.config),
      squares_gradients_(std::ranges::count(moment_names(context.config.optimizer), "exp_avg_sq") >
                         0),
      work_(context.backend.repeated_work()),
      gradient_checksums_(exchange.bit_checksums().size()) {}

void StepUpdate::observe(RunTimeline* timeline) {
  if (tensor_norms_) tensor_norms_->observe(timeline);
  if (muon_) muon_->observe(timeline);
}

// The gradients are of the loss sum divided by the rows of a batch, times the loss scale.
double StepUpdate::mean_scale(const collectives::StepTotals& totals) const {
  const auto rows = static_cast<double>(context_.config.train.global_batch *
                                        context_.graphs.training.loss_rows_per_sample);
  return rows / counted(totals) / planned_scale_;
}

double StepUpdate::gradient_norm(const collectives::StepTotals& totals) const {
  return std::sqrt(totals.squared_norm) * mean_scale(totals);
}

PlannedUpdate StepUpdate::plan(int64_t done, const collectives::StepTotals& totals) {
  planned_scale_ = loss_scale_.value();
  const double norm = gradient_norm(totals);
  return {
      .lr = learning_rate(context_.config.schedule, done, context_.config.train.steps, rate_falls_),
      .gradient_norm = norm,
      .gradient_scale = mean_scale(totals) * clip_factor(norm, context_.config.optimizer.clip_norm),
      .finite = std::isfinite(totals.loss_sum) && std::isfinite(norm) && !moments_overflow(norm),
      .number = done - loss_scale_.state().skipped + 1};
}

bool StepUpdate::moments_overflow(double gradient_norm) const {
  const double clipped =
      gradient_norm * clip_factor(gradient_norm, context_.config.optimizer.clip_norm);
  return squares_gradients_ && clipped * clipped > std::numeric_limits<float>::max();
}

// The loss of a pass in FP32 does not depend on the scale. FP16 activations may overflow in single
// batches, which are skipped.
bool StepUpdate::smaller_scale_helps(const collectives::StepTotals& totals) const {
  const bool loss_overflows =
      !std::isfinite(totals.loss_sum) && context_.plan.layout.compute == DType::kF32;
  return loss_scale_.dynamic() && !loss_scale_.exhausted() && !loss_overflows;
}

void StepUpdate::apply(const PlannedUpdate& update) {
  const auto timed = clock_.time(&StepClock::Phases::optimizer, "update my slice");
  exchange_.parameters_changed();
  optimizer_.prepare(update.lr, update.gradient_scale, update.number);
  if (StateChecksums* checksums = optimizer_.state_checksums()) {
    std::ranges::copy(exchange_.bit_checksums(), gradient_checksums_.begin());
    const bool summed_here =
        context_.plan.sharding.shards_optimizer() || context_.communicator.size() == 1;
    checksums->update_follows(summed_here ? gradient_checksums_ : std::span<const uint32_t>());
  }
  if (updates_later(context_.plan)) return update_by_bucket();
  adapt();
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

// The ranks exchange norms of whole tensors, or pieces of matrices.
void StepUpdate::adapt() {
  const auto adapt_with = [&](auto& exchanged) {
    exchanged.begin_step();
    optimizer_.adapt();
    clock_.ranks_met();
    clock_.phases.exchange += exchanged.exposed_ms();
    clock_.phases.optimizer -= exchanged.exposed_ms();
  };
  if (tensor_norms_) adapt_with(*tensor_norms_);
  if (muon_) adapt_with(*muon_);
}

}  // namespace lockstep::train
