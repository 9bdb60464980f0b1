#include "runtime/train/evaluation/prediction_scores.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/config/task.h"

namespace lockstep::train {
namespace {

// Sums over rows, or over outputs of several yes-or-no answers.
struct Sums {
  double loss = 0, weight = 0;
  int64_t rows = 0, correct = 0, top5 = 0;
};

// log(sum of e^x) - x[target]
double softmax_loss(std::span<const float> x, int32_t target) {
  const auto largest = static_cast<double>(*std::ranges::max_element(x));
  double sum = 0;
  for (const float value : x) sum += std::exp(static_cast<double>(value) - largest);
  return largest + std::log(sum) - static_cast<double>(x[static_cast<size_t>(target)]);
}

// max(x, 0) - x t + log(1 + e^-|x|)
double sigmoid_loss(double x, double t) {
  return std::max(x, 0.0) - x * t + std::log1p(std::exp(-std::abs(x)));
}

// How many classes are likelier than `target`: among equal outputs, the first is.
int64_t rank_of(std::span<const float> x, int32_t target) {
  const auto wanted = static_cast<size_t>(target);
  int64_t rank = 0;
  for (size_t i = 0; i < x.size(); ++i)
    rank += x[i] > x[wanted] || (x[i] == x[wanted] && i < wanted);
  return rank;
}

class Scorer {
 public:
  Scorer(std::span<const float> class_weights, const Predictions& predictions)
      : weights_(class_weights), predictions_(predictions) {}

  void add_classes() {
    for (int64_t row = 0; row < predictions_.rows(); ++row) {
      const std::span<const float> x = outputs(row);
      const int32_t target = predictions_.labels[static_cast<size_t>(row)];
      if (target < 0 || target >= predictions_.columns) continue;
      const double weight = weights_.empty() ? 1 : weights_[static_cast<size_t>(target)];
      const int64_t rank = rank_of(x, target);
      sums_.loss += weight * softmax_loss(x, target);
      sums_.weight += weight;
      sums_.correct += rank == 0;
      sums_.top5 += rank < 5;
      ++sums_.rows;
      const auto predicted = static_cast<int32_t>(std::ranges::max_element(x) - x.begin());
      confusion_.add(predicted, target);
      if (x.size() == 2) scored_.push_back({x[1] - x[0], target == 1});
    }
  }

  void add_yes_no() {
    const bool one = predictions_.columns == 1;
    for (size_t i = 0; i < predictions_.outputs.size(); ++i) {
      const double x = predictions_.outputs[i], t = predictions_.values[i];
      if (std::isnan(t)) continue;
      const double weight = weights_.empty() ? 1 : (1 - t) * weights_[0] + t * weights_[1];
      sums_.loss += weight * sigmoid_loss(x, t);
      sums_.weight += weight;
      sums_.correct += (x > 0) == (t > 0.5);
      ++sums_.rows;
      if (!one) continue;
      confusion_.add(x > 0, t > 0.5);
      scored_.push_back({predictions_.outputs[i], t > 0.5});
    }
  }

  // Keeps rows whose values are all there.
  void add_values(std::span<const double> target_std) {
    const auto columns = static_cast<size_t>(predictions_.columns);
    for (size_t at = 0; at < predictions_.outputs.size(); at += columns) {
      const std::span<const float> x(&predictions_.outputs[at], columns);
      const std::span<const float> t(&predictions_.values[at], columns);
      if (std::ranges::any_of(t, [](float value) { return std::isnan(value); })) continue;
      for (size_t c = 0; c < columns; ++c) {
        const double std = target_std.empty() ? 1 : target_std[c];
        const double distance = (static_cast<double>(x[c]) - static_cast<double>(t[c])) / std;
        sums_.loss += distance * distance / static_cast<double>(columns);
      }
      sums_.weight += 1;
      ++sums_.rows;
      values_.insert(values_.end(), x.begin(), x.end());
      values_.insert(values_.end(), t.begin(), t.end());
    }
  }

  std::optional<PredictionScores> scores(config::Task task) {
    if (sums_.rows == 0) return std::nullopt;
    PredictionScores found;
    Evaluation& evaluation = found.evaluation;
    evaluation.loss = sums_.loss / sums_.weight;
    evaluation.samples = sums_.rows;
    const auto rows = static_cast<double>(sums_.rows);
    evaluation.accuracy = static_cast<double>(sums_.correct) / rows;
    if (!predictions_.labels.empty() && predictions_.columns > 5)
      evaluation.top5 = static_cast<double>(sums_.top5) / rows;
    if (task == config::Task::kValues) add_value_scores(&found);
    if (task == config::Task::kClasses || task == config::Task::kYesNo) add_class_scores(&found);
    return found;
  }

 private:
  std::span<const float> outputs(int64_t row) const {
    const auto columns = static_cast<size_t>(predictions_.columns);
    return {&predictions_.outputs[static_cast<size_t>(row) * columns], columns};
  }

  void add_class_scores(PredictionScores* found) {
    const bool yes_no = predictions_.labels.empty();
    const auto classes = static_cast<size_t>(yes_no ? 2 : predictions_.columns);
    std::vector<metrics::ClassCounts::Counts> memory(classes);
    metrics::ClassCounts counts(memory);
    for (const metrics::Confusion::Cell& cell : confusion_.cells())
      counts.add(cell.predicted, cell.target, cell.count);
    metrics::TaskMetrics& task = found->evaluation.task;
    task[metrics::kF1] = counts.f1();
    task[metrics::kMatthews] = counts.matthews();
    if (classes == 2) task[metrics::kAuc] = metrics::area_under_roc(scored_);
    found->report.classes = std::move(confusion_);
  }

  void add_value_scores(PredictionScores* found) {
    const int64_t columns = predictions_.columns;
    const metrics::ValueMetrics::Samples samples = {.predictions = values_.data(),
                                                    .targets = values_.data() + columns,
                                                    .rows = sums_.rows,
                                                    .columns = columns,
                                                    .stride = 2 * columns};
    std::vector<std::byte> scratch(metrics::ValueMetrics::scratch_bytes(sums_.rows));
    found->evaluation.task = metrics::ValueMetrics::of(samples, scratch.data());
    for (int64_t c = 0; c < columns; ++c)
      found->report.values.push_back(metrics::ValueMetrics::of_column(samples, c, scratch.data()));
  }

  std::span<const float> weights_;
  const Predictions& predictions_;
  Sums sums_;
  metrics::Confusion confusion_;
  std::vector<metrics::ScoredClass> scored_;  // only with two classes
  std::vector<float> values_;                 // (rows, 2, columns) predictions and targets
};

}  // namespace

std::optional<PredictionScores> score_predictions(const config::ModelTraits& model,
                                                  std::span<const float> class_weights,
                                                  std::span<const double> target_std,
                                                  const Predictions& predictions) {
  if (!config::predicts_classes_or_values(model)) return std::nullopt;
  config::Task task = config::task_of(model);
  if (task == config::Task::kYesNo && predictions.columns > 1) task = config::Task::kOther;
  Scorer scorer(class_weights, predictions);
  if (!predictions.labels.empty())
    scorer.add_classes();
  else if (predictions.values.empty())
    return std::nullopt;
  else if (model.loss == Loss::kMeanSquaredError)
    scorer.add_values(target_std);
  else
    scorer.add_yes_no();
  return scorer.scores(task);
}

}  // namespace lockstep::train
