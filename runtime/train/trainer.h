#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/data/loader.h"
#include "runtime/exec/executor.h"
#include "runtime/metrics/timeline.h"
#include "runtime/train/checkpointer.h"
#include "runtime/train/evaluator.h"
#include "runtime/train/optimizer.h"
#include "runtime/train/reporter.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

struct TrainOptions {
  std::string resume = "none";  // "auto", "none" or a checkpoint's path
  int64_t max_steps =
      -1;  // stop at this step, counted from the beginning of the run; -1: at its end
};

struct TrainResult {
  int64_t step = 0;
  double loss = 0;  // of the last step
  std::optional<Evaluation> evaluation;
  uint64_t weights_hash = 0;
  double train_seconds = 0;  // of the steps alone
  bool preempted = false;    // stopped by a signal, checkpoint written
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

  TrainResult run(const TrainOptions& options);

 private:
  StepRecord step();
  LaneContext lane_context(int local_lane, const LaneBatch& batch) const;
  // How the summed gradient becomes a step.
  struct Update {
    double lr = 0;
    double gradient_norm = 0;   // of the mean gradient, before clipping
    double gradient_scale = 1;  // makes the sum a mean, and clips it
  };
  Update plan_update(const StepTotals& totals) const;
  StepRecord make_record(const StepTotals& totals, const Update& update, double step_ms) const;
  // What follows a step.
  struct Next {
    bool save = false;
    bool end = false;
  };
  // Evaluates where it is time to, completes the record, and decides what follows.
  Next decide(StepRecord& record, bool last);
  void save(const StepRecord& record);
  void evaluate(StepRecord& record);
  uint64_t agreed_hash();
  void start(const TrainOptions& options);

  const RunParts& parts_;
  RunMemory memory_;
  Reducer reducer_;
  Executor executor_;
  Optimizer optimizer_;
  Checkpointer checkpointer_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<Reporter> reporter_;  // rank 0
  std::unique_ptr<Timeline> timeline_;
  std::vector<LaneStatistics> statistics_;  // by local lane
  Progression progression_;
  TrainResult result_;
  bool stop_agreed_ = false;
  double peak_flops_ = 0;     // of all ranks
  double step_start_ms_ = 0;  // when the step under way began

  // Milliseconds of the step under way.
  struct Phases {
    double data = 0, compute = 0, exchange = 0, optimizer = 0;
  };
  Phases phases_;
};

}  // namespace lockstep
