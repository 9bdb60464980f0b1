#include "runtime/train/evaluation/evaluator.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/config/task.h"

namespace lockstep::train {

Evaluator::Evaluator(const RunContext& context,
                     const RunMemory& memory,
                     collectives::BucketAllGather* gather)
    : model_(context.model),
      weighted_(!context.config.train.class_weights.empty()),
      totals_(context.communicator, context.lane_shares()),
      pass_(context, memory, gather),
      scores_(context, memory.eval_scores),
      sums_(static_cast<size_t>(context.local_lanes())) {
  pass_.keep_predictions(scores_.prediction());
}

Evaluation Evaluator::run() {
  std::fill(sums_.begin(), sums_.end(), collectives::LaneStatistics{});
  scores_.begin();
  const auto lane_done = [this](size_t lane, const data::LaneBatch& batch, int64_t rows) {
    const auto* statistics = reinterpret_cast<const double*>(pass_.result());
    for (int k = 0; k < graph::kStatisticCount; ++k) sums_[lane].values[k] += statistics[k];
    scores_.lane_done(lane, batch, rows);
  };
  pass_.run({.lane_done = lane_done, .step_done = [this] { scores_.step_done(); }});
  const collectives::StepTotals totals = totals_.sum(sums_, {});
  const double counted = totals.valid_count > 0 ? totals.valid_count : 1;
  // For accuracy, samples count alike, whatever the weights of their classes.
  const double count = weighted_ ? std::max(static_cast<double>(scores_.counted()), 1.0) : counted;
  Evaluation evaluation = {
      totals.loss_sum / counted, pass_.samples(), totals.correct_count / count};
  const config::TargetKind kind = model_.scored_kind();
  const bool of_classes = kind == config::TargetKind::kClass ||
                          kind == config::TargetKind::kTokens ||
                          kind == config::TargetKind::kTokenClasses;
  if (of_classes && model_.has_accuracy() && model_.outputs > 5)
    evaluation.top5 = totals.top5_count / count;
  if (kind == config::TargetKind::kTokens && !model_.computes_loss)
    evaluation.perplexity = std::exp(evaluation.loss);
  evaluation.task = scores_.finish();
  evaluation.loss = scores_.loss().value_or(evaluation.loss);
  return evaluation;
}

void Evaluator::run_observed(exec::OpObserver& observer) {
  pass_.observe(&observer);
  run();
  pass_.observe(nullptr);
}

std::string words_for(const Evaluation& evaluation, const config::ModelTraits& model) {
  std::string text;
  if (model.has_accuracy()) text += fmt::format(", accuracy {:.4f}", evaluation.accuracy);
  if (evaluation.top5) text += fmt::format(", top-5 accuracy {:.4f}", *evaluation.top5);
  if (evaluation.perplexity) text += fmt::format(", perplexity {:.2f}", *evaluation.perplexity);
  return text + metrics::to_text(evaluation.task);
}

void each_metric(const Evaluation& evaluation,
                 const config::ModelTraits& model,
                 const std::function<void(const std::string& name, double value)>& f) {
  f("eval_loss", evaluation.loss);
  if (model.has_accuracy()) f("eval_accuracy", evaluation.accuracy);
  if (evaluation.top5) f("eval_top5_accuracy", *evaluation.top5);
  if (evaluation.perplexity) f("eval_perplexity", *evaluation.perplexity);
  for (int i = 0; i < metrics::kTaskMetricCount; ++i) {
    const auto& value = evaluation.task[static_cast<size_t>(i)];
    if (value) f(metrics::name_of(static_cast<metrics::TaskMetric>(i)), *value);
  }
}

double Evaluation::value_of(EvalConfig::Metric metric) const {
  using Metric = EvalConfig::Metric;
  if (metric == Metric::kLoss) return loss;
  if (metric == Metric::kAccuracy) return accuracy;
  const auto index = static_cast<size_t>(metric) - static_cast<size_t>(Metric::kF1);
  static_assert(static_cast<int>(Metric::kRecallAt10) - static_cast<int>(Metric::kF1) + 1 ==
                metrics::kTaskMetricCount);
  LOCKSTEP_CHECK(task[index].has_value(), "the task does not have the metric of eval.best ");
  return *task[index];
}

}  // namespace lockstep::train
