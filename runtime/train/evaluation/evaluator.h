#pragma once
// Loss, accuracy and the task's metrics on the evaluation data.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collectives/reduce/step_totals.h"
#include "runtime/train/evaluation/evaluation_pass.h"
#include "runtime/train/evaluation/task_scores.h"

namespace lockstep::train {

struct Evaluation {
  double loss = 0;  // mean over all rows that count
  int64_t samples = 0;
  // share of these rows that is predicted correctly; meaningless for a regression
  double accuracy = 0;
  // Share of these rows whose class is among the five most likely; only with more than five
  // classes.
  std::optional<double> top5 = std::nullopt;
  std::optional<double> perplexity = std::nullopt;  // exp(loss), of language models
  metrics::TaskMetrics task = {};

  // The value of the metric that eval.best names.
  double value_of(EvalConfig::Metric metric) const;
};

// The metrics other than the loss, as text for a log line: ", accuracy 0.9123, F1 0.9014".
std::string words_for(const Evaluation& evaluation, const config::ModelTraits& model);
// Calls f with each metric, including the loss, under its name in metrics.jsonl: f("eval_f1",
// 0.9014).
void each_metric(const Evaluation& evaluation,
                 const config::ModelTraits& model,
                 const std::function<void(const std::string& name, double value)>& f);

// Computes loss and metrics of an evaluation graph. Sums are taken lane by lane in a fixed order.
class Evaluator {
 public:
  // `gather`: see EvaluationPass.
  Evaluator(const RunContext& context,
            const RunMemory& memory,
            collectives::BucketAllGather* gather = nullptr);
  // Collective: all ranks call it together, and get the same result.
  Evaluation run();
  // Makes run() also keep a report; see TaskScores.
  void keep_report() { scores_.keep_report(); }
  const metrics::TaskReport& report() const { return scores_.report(); }
  // The same, only to report every op to `observer`. Collective.
  void run_observed(exec::OpObserver& observer);

 private:
  const config::ModelTraits& model_;
  bool weighted_;  // whether the loss has class weights
  collectives::TotalsExchange totals_;
  EvaluationPass pass_;
  TaskScores scores_;
  std::vector<collectives::LaneStatistics> sums_;  // by local lane
};

}  // namespace lockstep::train
