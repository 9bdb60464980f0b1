#pragma once
// A run from its start to its end: steps (training_step.h), what follows each of them
// (run_policy.h), what the ranks agree on (weights_agreement.h), and what they hold against
// checksums (state_guard.h).

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/train/checkpoints/checkpointer.h"
#include "runtime/train/evaluation/evaluator.h"
#include "runtime/train/folder/reporter.h"
#include "runtime/train/folder/run_timeline.h"
#include "runtime/train/folder/run_times.h"
#include "runtime/train/guard/not_finite_search.h"
#include "runtime/train/guard/numeric_fault.h"
#include "runtime/train/guard/state_guard.h"
#include "runtime/train/guard/weights_agreement.h"
#include "runtime/train/progression.h"
#include "runtime/train/run_clock.h"
#include "runtime/train/run_parts.h"
#include "runtime/train/run_policy.h"
#include "runtime/train/step/training_step.h"

namespace lockstep {

struct TrainResult {
  int64_t step = 0;
  std::optional<double> loss;  // of the last step; none where no step was left to do
  std::optional<Evaluation> evaluation;
  uint64_t weights_hash = 0;
  double train_seconds = 0;           // of the steps alone
  std::vector<RankTimes> rank_times;  // by rank
  bool preempted = false;             // stopped by a signal, checkpoint written
  bool early_stopped = false;
  int64_t failed_checkpoints = 0;
  double checkpoint_stall_seconds = 0;  // in which no step went on since one was saved
  std::optional<double> best_metric;
  int64_t best_step = 0;
};

// Trains: one object per rank, all ranks in lockstep.
class Trainer {
 public:
  // Allocates everything that the run will use.
  explicit Trainer(const RunParts& parts);

  // Sets the weights and the place in the data: `resume` is "auto", "none" or a checkpoint's path,
  // `allowed_changes` are fields that may differ from the checkpoint's. Writes nothing. May be
  // called again.
  void start(const std::string& resume, const std::vector<std::string>& allowed_changes = {});
  // Trains to the end of the run or, where max_steps is not negative, to that step, counted from
  // the beginning of the run.
  TrainResult run(int64_t max_steps = -1);
  // Instead: trains so many steps, or fewer where the ranks are asked to stop, and nothing else.
  // Milliseconds of each.
  std::vector<double> time_steps(int64_t steps);
  // Instead: trains to step `last`, and writes nothing. The records of its steps, of which the last
  // has the hash of the weights; fewer where the ranks are asked to stop. start() may follow again.
  std::vector<StepRecord> replay(int64_t last);

 private:
  bool go_on_from(const std::string& resume);
  void begin_anew();
  void begin_weights();
  void train(RunTimes& times);
  bool advance(RunTimes& times);
  void roll_back(const NumericFault& fault);
  StepRecord step();
  void judge_not_finite(const StepRecord& record);
  void warn(const std::string& what) const;
  int64_t flags();
  RunPolicy::Next follow_up(StepRecord& record, bool last);
  void evaluate(StepRecord& record);
  void judge(const RunPolicy::Place& place);
  void report(const StepRecord& record, bool checkpoint);
  void end_where_reports_failed();
  void save(const StepRecord& record, SaveTo where, bool last);
  void finish_save();
  void finish_save_before_the_end();
  void note_copy(const SaveOutcome& outcome);
  void note_save(const SaveOutcome& outcome, bool last = false);
  uint64_t weights_hash();
  Timeline* spans() const { return timeline_ ? timeline_->spans() : nullptr; }

  const RunParts& parts_;
  RunMemory memory_;
  TrainingStep step_;
  Checkpointer checkpointer_;
  WeightsAgreement agreement_;
  StateGuard guard_;
  NotFiniteSearch not_finite_;
  RunPolicy policy_;
  std::unique_ptr<Evaluator> evaluator_;      // null without evaluation data
  std::unique_ptr<Reporter> reporter_;        // rank 0
  std::unique_ptr<RunTimeline> timeline_;     // null without
  std::vector<std::string> hosts_;            // by rank
  std::vector<std::string> allowed_changes_;  // since a checkpoint was written
  Progression progression_;
  int64_t last_ = 0;                       // step, that this process trains to
  std::optional<int64_t> rolled_back_to_;  // since the last checkpoint was written
  int64_t skipped_in_a_row_ = 0;
  int64_t told_ = 0;                     // TrainingStep::Flag of all ranks, with the last step
  std::unique_ptr<RunClock> run_clock_;  // rank 0
  bool wait_told_ = false;
  std::optional<Error> report_error_;  // of rank 0: why the run cannot go on
  TrainResult result_;
};

}  // namespace lockstep
