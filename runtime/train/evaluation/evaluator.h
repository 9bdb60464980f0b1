#pragma once
// Loss, accuracy and the task's metrics on the evaluation data.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collectives/reduce/reducer.h"
#include "runtime/train/evaluation/evaluation_pass.h"
#include "runtime/train/evaluation/task_scores.h"

namespace lockstep {

struct Evaluation {
  double loss = 0;  // mean over all rows that count
  int64_t samples = 0;
  double accuracy = 0;  // share of them predicted correctly; meaningless for a regression
  // Share of them whose class is among the five that are likeliest; of more than five classes.
  std::optional<double> top5 = std::nullopt;
  std::optional<double> perplexity = std::nullopt;  // exp(loss), of language models
  TaskMetrics task = {};

  // What the evaluation has found for eval.best.
  double value_of(EvalConfig::Metric metric) const;
};

// ", accuracy 0.9123, F1 0.9014": what there is beside the loss, for a line of text.
std::string words_for(const Evaluation& evaluation, const ModelTraits& model);
// The same, and the loss, under their names in metrics.jsonl: f("eval_f1", 0.9014).
void each_metric(const Evaluation& evaluation,
                 const ModelTraits& model,
                 const std::function<void(const std::string& name, double value)>& f);

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
  bool weighted_;  // the loss, by classes
  Reducer& reducer_;
  EvaluationPass pass_;
  TaskScores scores_;
  std::vector<LaneStatistics> sums_;  // by local lane
};

}  // namespace lockstep
