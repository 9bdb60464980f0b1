#pragma once

#include <memory>
#include <vector>

#include "runtime/data/loader.h"
#include "runtime/exec/executor.h"
#include "runtime/train/batch_stage.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

struct Evaluation {
  double loss = 0;  // mean over all rows that count
  int64_t samples = 0;
  double accuracy = 0;  // share of them predicted correctly; meaningless for a regression
};

// Runs the evaluation graph over the whole evaluation set (or its first eval.max_samples samples):
// lanes split over ranks as in training, the last batch padded with rows that do not count, sums
// taken lane by lane in a fixed order.
class Evaluator {
 public:
  Evaluator(const RunParts& parts, const RunMemory& memory, Reducer& reducer);
  // All ranks together; equal on all of them.
  Evaluation run();

 private:
  const RunParts& parts_;
  Reducer& reducer_;
  Executor executor_;
  Loader loader_;
  BatchStage stage_;
  LaneContext& lane_;                 // of the lane that runs
  LaneStatistics& statistics_;        // that it leaves
  std::vector<LaneStatistics> sums_;  // by local lane
};

}  // namespace lockstep
