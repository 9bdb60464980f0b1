#pragma once
// A run from its start to its end: the steps (training_step.h), what follows each of them
// (run_policy.h), its checkpoints (saving.h), agreement of the ranks on the weights
// (weights_agreement.h), and checks of the state against checksums (state_guard.h).

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/run/saving.h"
#include "runtime/train/device_watch.h"
#include "runtime/train/energy_watch.h"
#include "runtime/train/evaluation/evaluator.h"
#include "runtime/train/folder/reporter.h"
#include "runtime/train/folder/run_times.h"
#include "runtime/train/guard/first_steps.h"
#include "runtime/train/guard/not_finite_search.h"
#include "runtime/train/guard/state_guard.h"
#include "runtime/train/guard/weights_agreement.h"
#include "runtime/train/run_policy.h"
#include "runtime/train/state/checkpoint_content.h"
#include "runtime/train/step/training_step.h"

namespace lockstep::train {

struct TrainResult {
  int64_t step = 0;
  std::optional<double> loss;  // of the last step; none if no step was left to do
  std::optional<Evaluation> evaluation;
  uint64_t weights_hash = 0;
  double train_seconds = 0;           // of the steps alone
  std::vector<RankTimes> rank_times;  // by rank
  std::vector<DeviceReport> devices;  // by rank, on rank 0; empty if nothing is known of them
  EnergyReport energy;                // on rank 0
  bool preempted = false;             // stopped by a signal, checkpoint written
  bool early_stopped = false;
  int64_t failed_checkpoints = 0;
  int64_t skipped_steps = 0;  // since the beginning of the run, because a number was not finite
  double checkpoint_stall_seconds = 0;  // in which training stood still for saves
  std::optional<double> best_metric;
  int64_t best_step = 0;
};

// Trains: one object per rank, all ranks in lockstep.
class Trainer {
 public:
  // Allocates everything that the run will use.
  explicit Trainer(const RunContext& context);

  // Sets the weights and the position in the data. `resume` is "auto", "none" or a checkpoint's
  // path; `allowed_changes` are fields that may differ from the checkpoint's. Writes nothing. May
  // be called again.
  void start(const std::string& resume, const std::vector<std::string>& allowed_changes = {});
  // Trains to the end of the run or, unless max_steps is negative, to that step, counted from the
  // beginning of the run.
  TrainResult run(int64_t max_steps = -1);
  // Instead of run(): trains this many steps, or fewer if the ranks are asked to stop, and does
  // nothing else. Returns the milliseconds of each.
  std::vector<double> time_steps(int64_t steps);
  // Instead of run(): trains to step `last` and writes nothing. Returns the records of its steps,
  // the last one with the hash of the weights; fewer if the ranks are asked to stop. start() may
  // follow again.
  std::vector<metrics::StepRecord> replay(int64_t last);

 private:
  bool resume_from(const std::string& resume);
  void train(RunTimes& times);
  bool advance(RunTimes& times);
  void roll_back(const NumericFault& fault);
  metrics::StepRecord step();
  void handle_not_finite(const metrics::StepRecord& record);
  int64_t flags();
  RunPolicy::Next follow_up(metrics::StepRecord& record, bool last);
  void evaluate(metrics::StepRecord& record);
  void judge(const RunPolicy::Position& position);
  void save(const metrics::StepRecord& record, const RunPolicy::Next& next);
  uint64_t weights_hash();
  metrics::Timeline* spans() const { return timeline_ ? timeline_->spans() : nullptr; }

  const RunContext& context_;
  RunMemory memory_;
  TrainingStep step_;
  CheckpointContent content_;
  checkpoint::Saving saving_;
  WeightsAgreement agreement_;
  StateGuard guard_;
  NotFiniteSearch not_finite_;
  FirstSteps first_steps_;
  RunPolicy policy_;
  std::unique_ptr<Evaluator> evaluator_;      // null without evaluation data
  std::unique_ptr<Reporter> reporter_;        // only on rank 0
  std::unique_ptr<RunTimeline> timeline_;     // may be null
  std::unique_ptr<DeviceWatch> devices_;      // null outside run()
  std::unique_ptr<EnergyWatch> energy_;       // null outside run()
  std::vector<std::string> hosts_;            // by rank
  std::vector<std::string> allowed_changes_;  // since a checkpoint was written
  Progression progression_;
  int64_t last_ = 0;                       // the step to which this process trains
  std::optional<int64_t> rolled_back_at_;  // the checkpoints written when it last rolled back
  int64_t skipped_in_a_row_ = 0;
  int64_t all_flags_ = 0;  // TrainingStep::Flag of all ranks, from the last step
  TrainResult result_;
};

}  // namespace lockstep::train
