#pragma once
// How the summed gradient becomes new parameters.

#include "runtime/train/step/loss_scale.h"
#include "runtime/train/step/step_clock.h"
#include "runtime/train/step/step_exchange.h"
#include "runtime/train/step/weight_average.h"

namespace lockstep::train {

struct PlannedUpdate {
  double lr = 0;
  double gradient_norm = 0;   // of the mean gradient, before clipping
  double gradient_scale = 1;  // makes the sum a mean, and clips it
  double clipped_norm = 0;    // of the gradients, times the scale
  bool finite = true;         // loss, gradient and moments; if false, nothing is applied
  int64_t number = 1;         // of the update, without the steps that were skipped
};

// The mean loss of a step.
double mean_loss(const collectives::StepSums& sums);

class StepUpdate {
 public:
  // All borrowed.
  StepUpdate(const RunContext& context,
             const RunMemory& memory,
             StepExchange& exchange,
             StepClock& clock);

  void observe(RunTimeline* timeline);
  // For the schedule PLATEAU: how often evaluations have reduced the rate, for the steps that
  // follow.
  void set_rate_falls(int64_t falls) { rate_falls_ = falls; }

  // The update after `done` completed steps whose gradients have these totals.
  PlannedUpdate plan(int64_t done, const collectives::StepSums& sums);
  // Updates this rank's slice; of sums that are yet to be gathered, each bucket when it arrives.
  // Collective.
  void apply(const PlannedUpdate& update);

  // Whether a device can decide on its updates, so that they need not wait for the host.
  bool can_queue() const { return gate_ != nullptr; }
  // Queues the update that plan() and apply() would make after `done` completed steps, behind the
  // gradients of the step, whose lanes have these statistics. Collective.
  void queue(int64_t done, std::span<const collectives::LaneStatistics> statistics);
  // The sums on which the queued update depends. Waits until they are there.
  collectives::StepSums queued_sums() { return gate_->sums(); }
  // Call after each step: `applied` or not, because a number was not finite.
  void step_done(bool applied) { loss_scale_.step_done(applied); }

  // The decision about the step that was planned last, if these were its sums.
  exec::UpdateDecision decide(const collectives::StepSums& sums) const;
  // Whether a step that is not finite could be with a smaller loss scale.
  bool smaller_scale_helps(const collectives::StepSums& sums) const;
  // The checksums of the gradients of the last update, taken where they were summed, by pieces of
  // this rank's parts of the buckets.
  std::span<const uint32_t> gradient_checksums() const { return gradient_checksums_; }

  Optimizer& optimizer() { return optimizer_; }
  WeightAverage* average() { return average_.get(); }  // null without an average
  LossScale& loss_scale() { return loss_scale_; }

 private:
  PlannedUpdate next(int64_t done) const;
  void prepare(const PlannedUpdate& update);
  void update_slice();
  void adapt();
  void update_by_bucket();

  const RunContext& context_;
  StepExchange& exchange_;
  StepClock& clock_;
  exec::UpdateGate* const gate_;                // null: the host decides
  std::unique_ptr<TensorNorms> tensor_norms_;   // null unless layer-wise
  std::unique_ptr<MuonDirections> muon_;        // null without Muon
  std::unique_ptr<FactoredAverages> factored_;  // null without Adafactor
  Optimizer optimizer_;
  std::unique_ptr<WeightAverage> average_;  // null without an average
  LossScale loss_scale_;
  exec::UpdateRule rule_;  // of the step that was planned last
  int64_t rate_falls_ = 0;
  std::unique_ptr<exec::RepeatedWork> work_;
  std::vector<uint32_t> gradient_checksums_;
};

}  // namespace lockstep::train
