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
  bool finite = true;         // loss, gradient and moments; if false, nothing is applied
  int64_t number = 1;         // of the update, without the steps that were skipped
};

// The mean loss of a step.
double mean_loss(const collectives::StepTotals& totals);

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
  PlannedUpdate plan(int64_t done, const collectives::StepTotals& totals);
  // Updates this rank's slice; of sums that are yet to be gathered, each bucket when it arrives.
  // Collective.
  void apply(const PlannedUpdate& update);
  // Call after each step: `applied` or not, because a number was not finite.
  void step_done(bool applied) { loss_scale_.step_done(applied); }

  // The norm of the mean gradient of the step that was planned last, from these totals.
  double gradient_norm(const collectives::StepTotals& totals) const;
  // Whether a moment that averages squares could become infinite, which would freeze its parameter.
  bool moments_overflow(double gradient_norm) const;
  // Whether a step that is not finite could be with a smaller loss scale.
  bool smaller_scale_helps(const collectives::StepTotals& totals) const;
  // The checksums of the gradients of the last update, taken where they were summed, by pieces of
  // this rank's parts of the buckets.
  std::span<const uint32_t> gradient_checksums() const { return gradient_checksums_; }

  Optimizer& optimizer() { return optimizer_; }
  WeightAverage* average() { return average_.get(); }  // null without an average
  LossScale& loss_scale() { return loss_scale_; }

 private:
  double mean_scale(const collectives::StepTotals& totals) const;
  void adapt();
  void update_by_bucket();

  const RunContext& context_;
  StepExchange& exchange_;
  StepClock& clock_;
  std::unique_ptr<TensorNorms> tensor_norms_;  // null unless layer-wise
  std::unique_ptr<MuonDirections> muon_;       // null without Muon
  Optimizer optimizer_;
  std::unique_ptr<WeightAverage> average_;  // null without an average
  LossScale loss_scale_;
  const bool squares_gradients_;  // whether the optimizer has a moment of their squares
  double planned_scale_ = 1;      // the loss scale of the step that was planned last
  int64_t rate_falls_ = 0;
  std::unique_ptr<exec::RepeatedWork> work_;
  std::vector<uint32_t> gradient_checksums_;
};

}  // namespace lockstep::train
