#pragma once
// One training step of this rank: the batches of its lanes, their gradients, the sum of the
// gradients over all ranks, and the update of this rank's slice.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/gather/sum_all_gather.h"
#include "collectives/power_sgd/power_sgd.h"
#include "runtime/data/loader.h"
#include "runtime/exec/length_bucket_executors.h"
#include "runtime/metrics/step_record.h"
#include "runtime/train/folder/run_timeline.h"
#include "runtime/train/run_context.h"
#include "runtime/train/step/batch_stage.h"
#include "runtime/train/step/loss_scale.h"
#include "runtime/train/step/muon.h"
#include "runtime/train/step/optimizer.h"
#include "runtime/train/step/step_checks.h"
#include "runtime/train/step/step_clock.h"
#include "runtime/train/step/weight_average.h"

namespace lockstep {

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
  };
  struct Outcome {
    StepRecord record{};  // without the fields of an evaluation
    int64_t flags = 0;    // of all ranks
    // Loss, gradient or a moment is not finite, and no smaller loss scale would help.
    bool diverged = false;
    // Some rank's state or received data are damaged (StepChecks::found_in_state() and
    // found_in_transfers()), and nothing was updated. Only `flags` is valid then.
    bool damaged = false;
  };
  // For the schedule PLATEAU: how often evaluations have reduced the rate, for the steps that
  // follow.
  void set_rate_falls(int64_t falls) { rate_falls_ = falls; }
  // Runs the step after `done` completed ones. `flags` returns this rank's flags; it is called
  // once, before anything of the run's state changes. The new parameters are gathered during the
  // next step's forward pass, or by gather_parameters(). Collective: all ranks call it together.
  Outcome run(int64_t done, const std::function<int64_t()>& flags);

  // Gathers the latest parameters on every rank, if no step follows that would do so. Collective.
  void gather_parameters();
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
  Repeated compute_again(OpObserver& observer);

  // Components that others share with the step.
  Reducer& reducer() { return reducer_; }
  BucketAllGather& parameter_gather() { return parameter_gather_; }
  Optimizer& optimizer() { return optimizer_; }
  WeightAverage* average() { return average_.get(); }  // null without an average
  LossScale& loss_scale() { return loss_scale_; }
  StepChecks& checks() { return checks_; }
  // The checksums of the gradients of the last update, taken where they were summed, by pieces of
  // this rank's parts of the buckets.
  std::span<const uint32_t> gradient_checksums() const { return gradient_checksums_; }
  StepClock& clock() { return clock_; }

 private:
  // How the summed gradient becomes a step.
  struct Update {
    double lr = 0;
    double gradient_norm = 0;   // of the mean gradient, before clipping
    double gradient_scale = 1;  // makes the sum a mean, and clips it
    bool finite = true;         // loss, gradient and moments; if false, nothing is applied
    int64_t number = 1;         // of the update, without the steps that were skipped
  };

  void take_batches(int64_t done);
  void load_batches();
  LaneContext lane_context(int64_t done, int local_lane, const LaneBatch& batch) const;
  void forward_backward();
  void begin_exchanges(TransferChecksums* checked);
  RepeatedWork* recorded_gradients();
  void queue_gradients();
  void start_gather();
  void run_lanes();
  void run_interleaved_lanes();
  StepTotals exchange_totals(int64_t flags);
  bool moments_overflow(double gradient_norm) const;
  bool smaller_scale_helps(const StepTotals& totals) const;
  bool damaged(const StepTotals& totals) const;
  Update plan_update(int64_t done, const StepTotals& totals) const;
  void update_my_slice(const Update& update);
  void adapt_update();
  StepRecord make_record(int64_t step, const StepTotals& totals, const Update& update) const;

  Timeline* spans() const { return timeline_ != nullptr ? timeline_->spans() : nullptr; }
  double exposed_ms() const;
  double computed_share() const;
  bool queued_exchange() const;

  const RunContext& context_;
  std::unique_ptr<PowerSgd> power_sgd_;  // null without PowerSGD
  Reducer reducer_;
  BucketAllGather parameter_gather_;
  SumAllGather sum_gather_;
  LengthBucketExecutors executors_;
  std::unique_ptr<TensorNorms> tensor_norms_;  // null unless layer-wise
  std::unique_ptr<MuonDirections> muon_;       // null without Muon
  Optimizer optimizer_;
  std::unique_ptr<WeightAverage> average_;  // null without an average
  StepChecks checks_;
  LossScale loss_scale_;
  const bool squares_gradients_;  // whether the optimizer has a moment of their squares
  int64_t rate_falls_ = 0;
  bool parameters_gathered_ = false;                          // since the last update
  std::vector<std::unique_ptr<RepeatedWork>> gradient_work_;  // see recorded_gradients()
  std::unique_ptr<RepeatedWork> update_work_;
  std::span<LaneContext> lanes_;          // by local lane
  std::span<LaneStatistics> statistics_;  // by local lane
  std::span<std::byte> train_batches_;    // memory of the loader
  BatchStage stage_;
  std::vector<LaneBatch> batches_;            // of the current step, by local lane
  std::vector<Executor::LaneRun> lane_runs_;  // the same, if lanes run together
  double peak_flops_ = 0;                     // of all ranks
  double sample_tokens_ = 0;                  // of a text on average, without padding; otherwise 0
  std::unique_ptr<Loader> loader_;
  std::span<const std::string> hosts_;
  RunTimeline* timeline_ = nullptr;  // may be null
  StepClock clock_;
  StepTotals totals_;           // of the latest step,
  double step_loss_scale_ = 1;  // and the loss scale with which it was computed
  std::vector<uint32_t> gradient_checksums_;
};

}  // namespace lockstep
