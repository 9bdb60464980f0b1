// One training step, and what overlaps with what.
//
//   computation  [forward and backward of each lane in turn .........]          [update slice]
//   exchange     [gather parameters][... reduce bucket 0, 1, 2 ...    ][totals]
//   loader       [read the next step's batches, and copy them to the device]
//
// Gather. An update changes only this rank's slice. The other slices are gathered during the next
// forward pass: each op waits only for the buckets that it reads (plan/gathers.cc). So a step
// begins before its parameters have arrived.
// Reduce. When an op of the backward pass completes a bucket, the executor hands it to the
// exchange, which exchanges it while earlier layers are still being differentiated. Sums over the
// rank's own lanes come first, so with ZeRO 0 and 1 buckets are exchanged during the last lane
// only, with ZeRO 2 and 3 during every lane. StepExchange::reduce() waits for the rest, and adds
// the rows of tied tables; that wait is exposed.
// ZeRO 0. Every rank updates all parameters, from sums that it gathers: those that the first op
// needs as soon as they are summed, the others during the next forward pass, which updates each
// bucket when it arrives (gather_sums() in plan/gathers.cc).
// Totals. Loss, gradient norm, flags and digests of all ranks. This collective is never hidden,
// because what follows depends on it: clipping, a skipped step, damage, a stop. All ranks see the
// same totals and so take the same branch.
//
// Invariants. The update of a step begins after its totals, so a damaged or diverged step has
// updated nothing and can be computed again; it ends before the next step's backward pass. Only the
// residuals of compressed gradients change earlier. flags() is called before the update and waits
// until a checkpoint has copied the state. The work queued by StepGradients and by StepUpdate may
// be recorded once and replayed (RepeatedWork): values that change from step to step must be read
// from a host_array().
// Times. Waits for other ranks and for data are subtracted from the compute phase, so that the
// phases of a step add up.
#include "runtime/train/step/training_step.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/flight_recorder.h"

namespace lockstep::train {
namespace {

bool is_same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

TrainingStep::TrainingStep(const RunContext& context, const RunMemory& memory)
    : context_(context),
      batches_(context, memory, clock_),
      exchange_(context, memory),
      gradients_(context, memory, batches_, exchange_, clock_),
      update_(context, memory, exchange_, clock_),
      checks_(context, memory, update_.optimizer().state_checksums()),
      recorder_(context, {clock_, gradients_, update_, checks_}) {
  FlightRecorder::here().name_buckets(context.plan.layout.bucket_names());
}

// ---------------------------------------------------------------- the training step --------------
TrainingStep::Outcome TrainingStep::run(int64_t done, const std::function<int64_t()>& flags) {
  const double start_ms = now_ms();
  clock_.phases = {};
  FlightRecorder::here().begin_step(done);
  checks_.begin_step(done);
  batches_.take();
  gradients_.begin_step(done, update_.loss_scale().value());
  forward_backward();  // of my lanes; leaves the gradient of the global batch in my slices
  const collectives::StepTotals totals = totals_ = exchange_totals(flags());
  if (damaged(totals)) return {.flags = totals.flags, .damaged = true};
  const PlannedUpdate update = update_.plan(done, totals);
  if (update.finite) update_.apply(update);  // to my slice
  update_.step_done(update.finite);
  if (clock_.timeline != nullptr) clock_.timeline->step_done(done + 1, start_ms);
  return {.record = recorder_.record(done + 1, totals, update),
          .flags = totals.flags,
          .diverged = !update.finite && !update_.smaller_scale_helps(totals)};
}
// -------------------------------------------------------------------------------------------------

void TrainingStep::forward_backward() {
  exchange_.begin_step(checks_.sent_gradients());
  StepClock::Phases& phases = clock_.phases;
  const double other_ms = phases.data + phases.optimizer;
  {
    const auto timed = clock_.time(&StepClock::Phases::compute, "gradients");
    gradients_.run(checks_);
    batches_.load_ahead();
    context_.backend.synchronize();
    if (clock_.timeline != nullptr && exchange_.queued())
      clock_.timeline->device_reduced(context_.backend.reduce_ms());
  }
  phases.compute -= exchange_.exposed_ms() + phases.data + phases.optimizer - other_ms;
}

// Ends the exchange. If this rank was less busy than the slowest one, it spent the difference
// waiting for it, whatever else it waited for.
collectives::StepTotals TrainingStep::exchange_totals(int64_t flags) {
  const double busy_ms = now_ms() - clock_.met_ms - exchange_.exposed_ms();
  if (!checks_.examine(now_ms() - clock_.start_ms)) flags |= kDamaged;
  const collectives::StepTotals totals = exchange_.totals(
      gradients_.statistics(),
      {.flags = flags, .digest = checks_.digest().value_or(0), .busy_ms = busy_ms});
  clock_.ranks_met();
  clock_.phases.exchange = exchange_.exposed_ms();
  clock_.phases.stragglers = std::min(clock_.phases.exchange, totals.slowest_ms - busy_ms);
  return totals;
}

// Ranks that all update everything must have the same state.
bool TrainingStep::damaged(const collectives::StepTotals& totals) const {
  return (totals.flags & kDamaged) != 0 ||
         (!context_.plan.sharding.shards_optimizer() && totals.digests_differ);
}

void TrainingStep::start(int64_t done, std::span<const std::string> hosts, RunTimeline* timeline) {
  clock_.timeline = timeline;
  batches_.start(done);
  recorder_.start(hosts);
  exchange_.parameters_changed();
  checks_.begin();
  exchange_.observe(timeline);
  gradients_.observe(timeline);
  update_.observe(timeline);
}

TrainingStep::Repeated TrainingStep::compute_again(exec::OpObserver& observer) {
  gradients_.observe(&observer);
  exchange_.begin_step(nullptr);
  gradients_.queue(checks_.gathered());
  context_.backend.synchronize();
  gradients_.observe(clock_.timeline);
  const collectives::StepTotals again = exchange_.totals(gradients_.statistics(), {});
  Repeated repeated;
  repeated.loss = mean_loss(again);
  repeated.grad_norm = update_.gradient_norm(again);
  repeated.same = is_same(again.loss_sum, totals_.loss_sum) &&
                  is_same(again.squared_norm, totals_.squared_norm);
  repeated.finite = std::isfinite(repeated.loss) && std::isfinite(repeated.grad_norm);
  repeated.moments_overflow = update_.moments_overflow(repeated.grad_norm);
  return repeated;
}

void TrainingStep::swap_average() {
  if (update_.average() == nullptr) return;
  update_.average()->swap();
  exchange_.parameters_changed();
  exchange_.gather_parameters();
}

}  // namespace lockstep::train
