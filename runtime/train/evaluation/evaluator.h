#pragma once
// Loss and accuracy on the evaluation data.

#include <vector>

#include "collectives/reduce/reducer.h"
#include "runtime/train/evaluation/evaluation_pass.h"

namespace lockstep {

struct Evaluation {
  double loss = 0;  // mean over all rows that count
  int64_t samples = 0;
  double accuracy = 0;  // share of them predicted correctly; meaningless for a regression
};

// Loss and accuracy of an evaluation graph; sums are taken lane by lane in a fixed order.
class Evaluator {
 public:
  // `gather`: see EvaluationPass.
  Evaluator(const RunParts& parts,
            const RunMemory& memory,
            Reducer& reducer,
            BucketAllGather* gather = nullptr);
  // All ranks together; equal on all of them.
  Evaluation run();

 private:
  Reducer& reducer_;
  EvaluationPass pass_;
  std::vector<LaneStatistics> sums_;  // by local lane
};

}  // namespace lockstep
