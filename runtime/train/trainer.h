#pragma once

#include <memory>
#include <optional>
#include <string>

#include "collectives/gather/sum_all_gather.h"
#include "collectives/power_sgd/power_sgd.h"
#include "runtime/data/loader.h"
#include "runtime/exec/executor.h"
#include "runtime/train/batch_stage.h"
#include "runtime/train/checkpointer.h"
#include "runtime/train/evaluator.h"
#include "runtime/train/loss_scale.h"
#include "runtime/train/optimizer.h"
#include "runtime/train/reporter.h"
#include "runtime/train/run_parts.h"
#include "runtime/train/run_timeline.h"
#include "runtime/train/run_times.h"
#include "runtime/train/weight_average.h"
#include "runtime/train/weights.h"

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
  std::optional<double> best_metric;
  int64_t best_step = 0;
};

// Trains: one object per rank, all ranks in lockstep.
class Trainer {
 public:
  // Allocates everything that the run will use.
  explicit Trainer(const RunParts& parts);
  ~Trainer();

  // Brings the weights and the place in the data: `resume` is "auto", "none" or a checkpoint's
  // path. Writes nothing.
  void start(const std::string& resume);
  // Trains to the end of the run or, where max_steps is not negative, to that step, counted from
  // the beginning of the run.
  TrainResult run(int64_t max_steps = -1);
  // Instead: trains so many steps, or fewer where the ranks are asked to stop, and nothing else.
  // Milliseconds of each.
  std::vector<double> time_steps(int64_t steps);

 private:
  void begin_weights();
  StepRecord step();
  Timeline* spans() const { return timeline_ ? timeline_->spans() : nullptr; }
  void load_batches();
  void forward_backward();
  void run_lanes();
  void run_lanes_together();
  double exposed_ms() const;
  bool queued_exchange() const;
  void adapt();
  StepTotals exchange_totals();
  LaneContext lane_context(int local_lane, const LaneBatch& batch) const;
  // How the summed gradient becomes a step.
  struct Update {
    double lr = 0;
    double gradient_norm = 0;   // of the mean gradient, before clipping
    double gradient_scale = 1;  // makes the sum a mean, and clips it
    bool finite = true;         // loss and gradient; else there is nothing to apply
    int64_t number = 1;         // of the update, without the steps that were skipped
  };
  Update plan_update(const StepTotals& totals) const;
  StepRecord make_record(const StepTotals& totals, const Update& update) const;
  // What follows a step.
  struct Next {
    bool save = false;
    bool end = false;
  };
  // Evaluates where it is time to, completes the record, and decides what follows.
  Next decide(StepRecord& record, bool last);
  void save(const StepRecord& record);
  void evaluate(StepRecord& record);
  void swap_average();
  void judge(const Evaluation& evaluation, int64_t step);
  void complete_weights();
  uint64_t agreed_hash();
  bool out_of_patience() const;
  [[noreturn]] void refuse_not_finite(int64_t step, const std::string& what) const;

  const RunParts& parts_;
  RunMemory memory_;
  std::unique_ptr<PowerSgd> power_sgd_;  // null without
  Reducer reducer_;
  BucketAllGather gather_;
  SumAllGather sum_all_gather_;
  Executor executor_;
  std::unique_ptr<TensorNorms> tensor_norms_;
  Optimizer optimizer_;
  std::unique_ptr<WeightAverage> average_;  // null without
  Checkpointer checkpointer_;
  LossScale loss_scale_;
  WeightsHash weights_hash_;
  std::unique_ptr<RepeatedWork> gradient_work_, update_work_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<Reporter> reporter_;     // rank 0
  std::unique_ptr<RunTimeline> timeline_;  // null without
  std::span<LaneContext> lanes_;           // by local lane
  std::span<LaneStatistics> statistics_;   // by local lane
  BatchStage stage_;
  std::vector<LaneBatch> batches_;            // of the step under way, by local lane
  std::vector<Executor::LaneRun> lane_runs_;  // the same for lanes that run together
  Progression progression_;
  std::optional<int64_t> last_checkpoint_;  // step of the newest that this process knows to be good
  TrainResult result_;
  std::vector<std::string> hosts_;  // by rank
  bool stop_agreed_ = false;
  double peak_flops_ = 0;     // of all ranks
  double step_start_ms_ = 0;  // when the step under way began
  double together_ms_ = 0;    // when the ranks last left an exchange together

  // Milliseconds of the step under way. Stragglers are part of the exchange.
  struct Phases {
    double data = 0, compute = 0, exchange = 0, stragglers = 0, optimizer = 0;
  };
  Phases phases_;
};

}  // namespace lockstep
