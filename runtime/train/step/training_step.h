#pragma once
// One training step of this rank: the batches of its lanes, their gradients, the sum of these with
// those of all ranks, and the update of the slice that this rank owns.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/gather/sum_all_gather.h"
#include "collectives/power_sgd/power_sgd.h"
#include "runtime/data/loader.h"
#include "runtime/exec/length_executors.h"
#include "runtime/metrics/step_record.h"
#include "runtime/train/folder/run_timeline.h"
#include "runtime/train/run_parts.h"
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
  // `memory`: of allocate_run(). Both are borrowed.
  TrainingStep(const RunParts& parts, const RunMemory& memory);

  // The state is that after `done` steps, all of it in memory: goes on from there, with the batches
  // of the step that follows. `hosts`: by rank; `timeline`: null without. Both are borrowed. May be
  // called again, between steps.
  void start(int64_t done, std::span<const std::string> hosts, RunTimeline* timeline);

  // What a rank tells all others with a step; bits of a number.
  enum Flag : int64_t {
    kStop = 1,      // it has been asked to stop
    kFailed = 2,    // it cannot go on
    kSaving = 4,    // its part of the checkpoint under way is still to be done
    kSaveDue = 8,   // it is time for a checkpoint
    kDamaged = 16,  // what it has is not what it should be: see StepChecks
  };
  struct Outcome {
    StepRecord record{};  // without what an evaluation adds
    int64_t flags = 0;    // of all ranks
    // Loss or gradient is not finite, and no smaller loss scale would help.
    bool diverged = false;
    // What some rank has is not what it should be (StepChecks::found_in_state() and
    // found_in_transfers()): nothing has been updated. Of the rest only the flags count.
    bool damaged = false;
  };
  // How often an evaluation has made the rate fall (schedule PLATEAU), for the steps that follow.
  void set_rate_falls(int64_t falls) { rate_falls_ = falls; }
  // The step after `done` completed ones. `flags` is called once, before anything of the run
  // changes, for what this rank tells. All ranks together. The new parameters are gathered under the
  // next step's forward pass, or by gather_parameters().
  Outcome run(int64_t done, const std::function<int64_t()>& flags);

  // Gives every rank what the others have updated last, where no step follows that would. All ranks
  // together.
  void gather_parameters();
  // Gives every rank the average of the weights in their place, and by a second call the weights
  // back. Nothing without an average. All ranks together.
  void swap_average();

  // Computes the gradients of the step that was run last once more, where it has updated nothing,
  // and tells `observer` of every op. All ranks together.
  void compute_again(OpObserver& observer);

  // What others share with the step.
  Reducer& reducer() { return reducer_; }
  BucketAllGather& parameter_gather() { return parameter_gather_; }
  Optimizer& optimizer() { return optimizer_; }
  WeightAverage* average() { return average_.get(); }  // null without
  LossScale& loss_scale() { return loss_scale_; }
  StepChecks& checks() { return checks_; }
  // By pieces of this rank's parts of the buckets: the sums of the bits of the gradients that the
  // last update was to apply, as they were summed.
  std::span<const uint32_t> gradient_sums() const { return gradient_sums_; }
  StepClock& clock() { return clock_; }

 private:
  // How the summed gradient becomes a step.
  struct Update {
    double lr = 0;
    double gradient_norm = 0;   // of the mean gradient, before clipping
    double gradient_scale = 1;  // makes the sum a mean, and clips it
    bool finite = true;         // loss and gradient; else there is nothing to apply
    int64_t number = 1;         // of the update, without the steps that were skipped
  };

  void take_batches(int64_t done);
  void load_batches();
  LaneContext lane_context(int64_t done, int local_lane, const LaneBatch& batch) const;
  void forward_backward();
  void begin_exchanges(TransferSums* checked);
  RepeatedWork* recorded_gradients();
  void queue_gradients();
  void start_gather();
  void run_lanes();
  void run_lanes_together();
  StepTotals exchange_totals(int64_t flags);
  bool damaged(const StepTotals& totals) const;
  Update plan_update(int64_t done, const StepTotals& totals) const;
  void update_my_slice(const Update& update);
  void adapt_update();
  StepRecord make_record(int64_t step, const StepTotals& totals, const Update& update) const;

  Timeline* spans() const { return timeline_ != nullptr ? timeline_->spans() : nullptr; }
  double exposed_ms() const;
  double computed_share() const;
  bool queued_exchange() const;

  const RunParts& parts_;
  std::unique_ptr<PowerSgd> power_sgd_;  // null without
  Reducer reducer_;
  BucketAllGather parameter_gather_;
  SumAllGather sum_gather_;
  LengthExecutors executors_;
  std::unique_ptr<TensorNorms> tensor_norms_;  // null without
  std::unique_ptr<MuonDirections> muon_;       // null without
  Optimizer optimizer_;
  std::unique_ptr<WeightAverage> average_;  // null without
  StepChecks checks_;
  LossScale loss_scale_;
  int64_t rate_falls_ = 0;
  bool parameters_gathered_ = false;                          // since they were last updated
  std::vector<std::unique_ptr<RepeatedWork>> gradient_work_;  // see recorded_gradients()
  std::unique_ptr<RepeatedWork> update_work_;
  std::span<LaneContext> lanes_;          // by local lane
  std::span<LaneStatistics> statistics_;  // by local lane
  std::span<std::byte> train_batches_;    // memory of the loader
  BatchStage stage_;
  std::vector<LaneBatch> batches_;            // of the step under way, by local lane
  std::vector<Executor::LaneRun> lane_runs_;  // the same for lanes that run together
  double peak_flops_ = 0;                     // of all ranks
  double sample_tokens_ = 0;                  // of a text on average, without padding; else 0
  std::unique_ptr<Loader> loader_;
  std::span<const std::string> hosts_;
  RunTimeline* timeline_ = nullptr;  // null without
  StepClock clock_;
  std::vector<uint32_t> gradient_sums_;
};

}  // namespace lockstep
