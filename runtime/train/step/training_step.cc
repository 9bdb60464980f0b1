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
// On a device that works from a queue, the update is queued behind the gradients and does not wait
// for the host:
//
//   device  [gradients .............][sums][update slice][gradients of the next step ....
//   host    [queue both][reports][wait ...]....[record, queue the next step]
//
// Sums. The device gathers the losses and squares of all ranks and decides itself
// (exec::UpdateGate), by the same function as the host and so with the same bits. If a number is
// not finite, the update does nothing. The host waits for the sums only, so it too knows the
// outcome of a step before it queues the next one.
// Reports. Flags are exchanged during the gradients; a signal that arrives later counts in the next
// step. The busy times that are exchanged with them are those up to this point, so ranks compare
// them one step late.
// The host decides, as on a CPU, in a step that checks transfers or memory, and with an optimizer
// that computes something between the gradients and the update (LAMB, LARS, Muon).
//
// Invariants. The update of a step begins after its totals, so a damaged or diverged step has
// updated nothing and can be computed again; it ends before the next step's backward pass. Only the
// residuals of compressed gradients change earlier. flags() is called before the update is queued
// and waits until a checkpoint has copied the state. The work queued by StepGradients and by
// StepUpdate may be recorded once and replayed (RepeatedWork): values that change from step to step
// must be read from a host_array(). The host may change these arrays once it has the sums, while
// the update runs: the constants of the update are copied to the device before (FlatUpdate::load).
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
  const bool queued = update_.can_queue() && !checks_.checks_transfers();
  // Forward and backward pass of my lanes; leaves the gradient of the global batch in my slices.
  const collectives::StepTotals totals = totals_ =
      queued ? gradients_and_update(done, flags) : gradients(flags);
  if (damaged(totals)) return {.flags = totals.flags, .damaged = true};
  const PlannedUpdate update = update_.plan(done, totals);
  if (update.finite && !queued) update_.apply(update);  // to my slice
  update_.step_done(update.finite);
  if (clock_.timeline != nullptr) clock_.timeline->step_done(done + 1, start_ms);
  return {.record = recorder_.record(done + 1, totals, update),
          .flags = totals.flags,
          .diverged = !update.finite && !update_.smaller_scale_helps(totals)};
}
// -------------------------------------------------------------------------------------------------

// The host decides about the update. If this rank was less busy than the slowest one, it spent the
// difference waiting for it, whatever else it waited for.
collectives::StepTotals TrainingStep::gradients(const std::function<int64_t()>& flags) {
  forward_backward([this] {
    batches_.load_ahead();
    context_.backend.synchronize();
  });
  int64_t raised = flags();
  const double busy_ms = clock_.busy_ms() - exchange_.exposed_ms();
  if (!checks_.examine(now_ms() - clock_.start_ms)) raised |= kDamaged;
  const collectives::StepTotals totals = exchange_.totals(
      gradients_.statistics(),
      {.flags = raised, .digest = checks_.digest().value_or(0), .busy_ms = busy_ms});
  clock_.ranks_met();
  clock_.phases.exchange = exchange_.exposed_ms();
  clock_.phases.stragglers = std::min(clock_.phases.exchange, totals.slowest_ms - busy_ms);
  return totals;
}

// The device decides. The update follows the gradients in its queue; the host waits for the sums
// on which both decide, and prepares the next step during the update.
collectives::StepTotals TrainingStep::gradients_and_update(int64_t done,
                                                           const std::function<int64_t()>& flags) {
  collectives::StepTotals totals;
  double ahead_ms = 0;  // of the slowest rank, how much longer it was busy
  forward_backward([&] {
    const int64_t raised = flags();
    update_.queue(done, gradients_.statistics());
    batches_.load_ahead();
    const double busy_ms = clock_.busy_ms();
    totals = exchange_.reports({.flags = raised, .busy_ms = busy_ms});
    clock_.ranks_met();
    ahead_ms = totals.slowest_ms - busy_ms;
    static_cast<collectives::StepSums&>(totals) = update_.queued_sums();
  });
  clock_.waited_ms = clock_.phases.exchange = exchange_.exposed_ms();
  clock_.phases.stragglers = std::min(clock_.phases.exchange, ahead_ms);
  return totals;
}

// Runs or queues both passes, and `finish`, which waits for them.
void TrainingStep::forward_backward(const std::function<void()>& finish) {
  exchange_.begin_step(checks_.sent_gradients());
  StepClock::Phases& phases = clock_.phases;
  const double other_ms = phases.data + phases.optimizer;
  {
    const auto timed = clock_.time(&StepClock::Phases::compute, "gradients");
    gradients_.run(checks_);
    finish();
    if (clock_.timeline != nullptr && exchange_.queued())
      clock_.timeline->device_reduced(context_.backend.reduce_ms());
  }
  phases.compute -= exchange_.exposed_ms() + phases.data + phases.optimizer - other_ms;
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
  const exec::UpdateDecision decision = update_.decide(again);
  repeated.grad_norm = decision.gradient_norm;
  repeated.same = is_same(again.loss_sum, totals_.loss_sum) &&
                  is_same(again.squared_norm, totals_.squared_norm);
  repeated.finite = std::isfinite(repeated.loss) && std::isfinite(repeated.grad_norm);
  repeated.moments_overflow = decision.moments_overflow;
  return repeated;
}

void TrainingStep::swap_average() {
  if (update_.average() == nullptr) return;
  update_.average()->swap();
  exchange_.parameters_changed();
  exchange_.gather_parameters();
}

}  // namespace lockstep::train
