#pragma once
// Loss and accuracy on the evaluation data.

#include <optional>
#include <vector>

#include "collectives/reduce/reducer.h"
#include "runtime/train/evaluation/evaluation_pass.h"

namespace lockstep {

struct Evaluation {
  double loss = 0;  // mean over all rows that count
  int64_t samples = 0;
  double accuracy = 0;  // share of them predicted correctly; meaningless for a regression
  // Share of them whose class is among the five that are likeliest; of more than five classes.
  std::optional<double> top5 = std::nullopt;
  std::optional<double> perplexity = std::nullopt;  // exp(loss), of language models
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
  const ModelTraits& model_;
  Reducer& reducer_;
  EvaluationPass pass_;
  std::vector<LaneStatistics> sums_;  // by local lane
};

}  // namespace lockstep
