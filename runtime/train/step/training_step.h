#pragma once
// One training step of this rank: the batches of its lanes, their gradients, the sum of the
// gradients over all ranks, and the update of this rank's slice.

#include <functional>

#include "runtime/train/step/step_recorder.h"

namespace lockstep::train {

class TrainingStep {
 public:
  // `memory`: from allocate_run(). Both are borrowed.
  TrainingStep(const RunContext& context, const RunMemory& memory);

  // Starts from the state after `done` steps, which must be in memory, with the batches of the next
  // step. `hosts`: by rank; `timeline`: may be null. Both are borrowed. May be called again between
  // steps.
  void start(int64_t done, std::span<const std::string> hosts, RunTimeline* timeline);

  // What a rank reports to all others with a step; bits of a number.
  enum Flag : int64_t {
    kStop = 1,              // it has been asked to stop
    kFailed = 2,            // it cannot continue
    kSaving = 4,            // its part of the checkpoint in progress is not finished
    kSaveDue = 8,           // a checkpoint is due
    kDamaged = 16,          // its state or received data are damaged: see StepChecks
    kDeviceStatesDue = 32,  // of all ranks: see DeviceWatch
    kEnergyDue = 64,        // see EnergyWatch
  };
  struct Outcome {
    metrics::StepRecord record{};  // without the fields of an evaluation
    int64_t flags = 0;             // of all ranks
    // Loss, gradient or a moment is not finite, and no smaller loss scale would help.
    bool diverged = false;
    // Some rank's state or received data are damaged (StepChecks::found_in_state() and
    // found_in_transfers()), and nothing was updated. Only `flags` is valid then.
    bool damaged = false;
  };
  // Runs the step after `done` completed ones. `flags` returns this rank's flags; it is called
  // once, before anything of the run's state changes. The new parameters are gathered during the
  // next step's forward pass, or by StepExchange::gather_parameters(). Collective: all ranks call
  // it together.
  Outcome run(int64_t done, const std::function<int64_t()>& flags);

  // Swaps the weights and their average on every rank; a second call swaps them back. Does nothing
  // without an average. Collective.
  void swap_average();

  // What compute_again() came to, on all ranks alike.
  struct Repeated {
    double loss = 0, grad_norm = 0;
    bool same = false;              // the same numbers as in the step itself
    bool finite = false;            // both
    bool moments_overflow = false;  // the squared norm overflows a moment of the optimizer
  };
  // Computes the gradients of the latest step again, if that step has updated nothing, and reports
  // every op to `observer`. Collective.
  Repeated compute_again(exec::OpObserver& observer);

  // Its parts.
  StepClock& clock() { return clock_; }
  StepExchange& exchange() { return exchange_; }
  StepUpdate& update() { return update_; }
  StepChecks& checks() { return checks_; }

 private:
  collectives::StepTotals gradients(const std::function<int64_t()>& flags);
  collectives::StepTotals gradients_and_update(int64_t done, const std::function<int64_t()>& flags);
  void forward_backward(const std::function<void()>& finish);
  bool damaged(const collectives::StepTotals& totals) const;

  const RunContext& context_;
  StepClock clock_;
  StepBatches batches_;
  StepExchange exchange_;
  StepGradients gradients_;
  StepUpdate update_;
  StepChecks checks_;
  StepRecorder recorder_;
  collectives::StepTotals totals_;  // of the latest step
};

}  // namespace lockstep::train
