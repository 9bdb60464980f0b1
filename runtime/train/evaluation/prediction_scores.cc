#include "runtime/train/evaluation/prediction_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "runtime/config/task.h"
#include "runtime/graph/ops/ctc_loss.h"
#include "runtime/train/evaluation/task_score.h"

namespace lockstep::train {
namespace {

// Sums over rows.
struct Sums {
  double loss = 0, weight = 0, correct = 0, top5 = 0;
  int64_t rows = 0;
};

// log(sum of e^x) - x[target]
double softmax_loss(std::span<const float> x, int32_t target) {
  const auto largest = static_cast<double>(*std::ranges::max_element(x));
  double sum = 0;
  for (const float value : x) sum += std::exp(static_cast<double>(value) - largest);
  return largest + std::log(sum) - static_cast<double>(x[static_cast<size_t>(target)]);
}

// The loss of a row of a distribution: the sum of -t log p.
double distribution_loss(std::span<const float> x, std::span<const float> t) {
  double loss = 0;
  for (size_t c = 0; c < x.size(); ++c)
    if (t[c] != 0) loss += static_cast<double>(t[c]) * softmax_loss(x, static_cast<int32_t>(c));
  return loss;
}

// max(x, 0) - x t + log(1 + e^-|x|); with a weight p of yes, (1 - t) x + (1 + (p - 1) t)
// (log(1 + e^-|x|) + max(-x, 0))
double sigmoid_loss(double x, double t, double p) {
  const double log_term = std::log1p(std::exp(-std::abs(x)));
  if (p == 1) return std::max(x, 0.0) - x * t + log_term;
  return (1 - t) * x + (1 + (p - 1) * t) * (log_term + std::max(-x, 0.0));
}

double value_loss(const config::ModelTraits& model, double difference) {
  const double distance = std::abs(difference), delta = model.huber_delta;
  if (model.loss == Loss::kMeanAbsoluteError) return distance;
  if (model.loss != Loss::kHuber) return difference * difference;
  return distance < delta ? distance * distance / 2 : delta * (distance - delta / 2);
}

double log_sum(double a, double b) {
  const double largest = std::max(a, b);
  if (std::isinf(largest)) return largest;
  return largest + std::log(std::exp(a - largest) + std::exp(b - largest));
}

// The loss of a transcript, in the words of ctc_loss.h. x: (frames, classes).
double transcript_loss(std::span<const float> x, size_t classes, const graph::CtcTarget& target) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  std::vector<double> alpha, before(static_cast<size_t>(target.states()), kNone);
  for (int64_t t = 0; t < target.frames(); ++t) {
    const std::span<const float> frame = x.subspan(static_cast<size_t>(t) * classes, classes);
    alpha.clear();
    for (size_t s = 0; s < before.size(); ++s) {
      const auto state = static_cast<int64_t>(s);
      double paths = s < 2 ? 0 : kNone;
      if (t > 0) {
        paths = s == 0 ? before[s] : log_sum(before[s], before[s - 1]);
        if (target.can_skip_to(state)) paths = log_sum(paths, before[s - 2]);
      }
      alpha.push_back(paths - softmax_loss(frame, target.class_of(state)));
    }
    std::swap(alpha, before);
  }
  return -(before.size() == 1 ? before[0] : log_sum(before.back(), before[before.size() - 2]));
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
  Scorer(const config::ModelTraits& model,
         const TrainConfig& train,
         std::span<const std::string> class_names,
         const Predictions& predictions)
      : model_(model), train_(train), class_names_(class_names), predictions_(predictions) {}

  void add_classes() {
    const std::vector<float>& weights = train_.class_weights;
    for (int64_t row = 0; row < predictions_.rows(); ++row) {
      const std::span<const float> x = outputs(row);
      const int32_t target = predictions_.labels[static_cast<size_t>(row)];
      if (target < 0 || target >= predictions_.columns) continue;
      const double weight = weights.empty() ? 1 : weights[static_cast<size_t>(target)];
      const int64_t rank = rank_of(x, target);
      sums_.loss += weight * softmax_loss(x, target);
      sums_.weight += weight;
      sums_.correct += rank == 0;
      sums_.top5 += rank < 5;
      ++sums_.rows;
    }
  }

  void add_transcripts() {
    const auto blank = static_cast<int32_t>(model_.transcript->blank);
    const auto columns = static_cast<size_t>(predictions_.columns);
    const size_t outputs = columns * static_cast<size_t>(predictions_.tokens);
    for (size_t i = 0; i < static_cast<size_t>(predictions_.samples); ++i) {
      const graph::CtcTarget target{&predictions_.labels[i * target_elements()], blank};
      if (!target.counts()) continue;
      sums_.loss += transcript_loss({&predictions_.outputs[i * outputs], outputs}, columns, target);
      sums_.weight += 1;
      ++sums_.rows;
    }
  }

  // `target_std`: see score_predictions().
  void add_values(std::span<const double> target_std) {
    for (int64_t row = 0; row < predictions_.rows(); ++row) {
      const std::span<const float> x = outputs(row), t = targets(row);
      if (std::ranges::any_of(t, [](float value) { return std::isnan(value); })) continue;
      ++sums_.rows;
      if (model_.scored_kind() == config::TargetKind::kDistribution)
        add_distribution(x, t);
      else if (model_.scored_kind() == config::TargetKind::kYesNo)
        add_yes_no(x, t);
      else
        add_value_row(x, t, target_std);
    }
  }

  std::optional<PredictionScores> scores() {
    if (sums_.rows == 0) return std::nullopt;
    PredictionScores found;
    Evaluation& evaluation = found.evaluation;
    evaluation.loss = sums_.loss / sums_.weight;
    evaluation.samples = sums_.rows;
    const auto rows = static_cast<double>(sums_.rows);
    evaluation.accuracy = sums_.correct / rows;
    if (config::predicts_classes(model_) && !predictions_.labels.empty() &&
        predictions_.columns > 5)
      evaluation.top5 = sums_.top5 / rows;
    add_task_scores(&found);
    return found;
  }

 private:
  // That of a sample.
  size_t target_elements() const {
    const size_t all =
        predictions_.labels.empty() ? predictions_.values.size() : predictions_.labels.size();
    return all / static_cast<size_t>(predictions_.samples);
  }
  std::span<const float> row_of(const std::vector<float>& values, int64_t row) const {
    const auto columns = static_cast<size_t>(predictions_.columns);
    return {&values[static_cast<size_t>(row) * columns], columns};
  }
  std::span<const float> outputs(int64_t row) const { return row_of(predictions_.outputs, row); }
  std::span<const float> targets(int64_t row) const { return row_of(predictions_.values, row); }

  void add_distribution(std::span<const float> x, std::span<const float> t) {
    sums_.loss += distribution_loss(x, t);
    sums_.weight += 1;
    const auto largest = [](std::span<const float> row) {
      return std::ranges::max_element(row) - row.begin();
    };
    sums_.correct += largest(x) == largest(t);
  }

  void add_yes_no(std::span<const float> x, std::span<const float> t) {
    const std::vector<float>&weights = train_.class_weights, &positive = train_.pos_weight;
    const auto columns = static_cast<double>(x.size());
    double loss = 0, correct = 0;
    for (size_t c = 0; c < x.size(); ++c) {
      const double p = positive.empty() ? 1 : positive[positive.size() == 1 ? 0 : c];
      loss += sigmoid_loss(x[c], t[c], p) / columns;
      correct += ((x[c] > 0) == (t[c] > 0.5f)) / columns;
    }
    const double first = t[0];
    const double weight = weights.empty() ? 1 : (1 - first) * weights[0] + first * weights[1];
    sums_.loss += weight * loss;
    sums_.weight += weight;
    sums_.correct += correct;
  }

  void add_value_row(std::span<const float> x,
                     std::span<const float> t,
                     std::span<const double> target_std) {
    for (size_t c = 0; c < x.size(); ++c) {
      const double std = target_std.empty() ? 1 : target_std[c];
      const double difference = (static_cast<double>(x[c]) - static_cast<double>(t[c])) / std;
      sums_.loss += value_loss(model_, difference) / static_cast<double>(x.size());
    }
    sums_.weight += 1;
  }

  // As TaskScores, but with all rows as one lane.
  void add_task_scores(PredictionScores* found) {
    const int64_t rows = predictions_.rows();
    const int64_t rows_of_sample = std::max<int64_t>(predictions_.tokens, 1);
    const std::unique_ptr<TaskScore> score = make_score({.model = model_,
                                                         .columns = predictions_.columns,
                                                         .lane_rows = rows,
                                                         .lane_samples = predictions_.samples,
                                                         .rows = rows,
                                                         .samples = predictions_.samples,
                                                         .class_names = class_names_});
    if (score == nullptr) return;
    const bool labels = !predictions_.labels.empty();
    const void* const targets =
        labels ? static_cast<const void*>(predictions_.labels.data()) : predictions_.values.data();
    std::vector<std::byte> records(static_cast<size_t>(score->lane_records()) *
                                   score->record_bytes());
    score->write({.predictions = reinterpret_cast<const std::byte*>(predictions_.outputs.data()),
                  .stride = predictions_.columns,
                  .targets = static_cast<const std::byte*>(targets),
                  .target_elements = static_cast<int64_t>(target_elements()),
                  .samples = predictions_.samples,
                  .rows = rows_of_sample,
                  .target_rows = rows_of_sample},
                 records.data());
    std::vector<std::byte> counts(score->count_bytes()), samples(score->sample_bytes());
    score->begin(counts.data(), samples.empty() ? nullptr : samples.data(), &found->report);
    for (size_t at = 0; at < records.size(); at += score->record_bytes()) score->add(&records[at]);
    found->evaluation.task = score->finish();
  }

  const config::ModelTraits& model_;
  const TrainConfig& train_;
  std::span<const std::string> class_names_;
  const Predictions& predictions_;
  Sums sums_;
};

}  // namespace

std::optional<PredictionScores> score_predictions(const config::ModelTraits& model,
                                                  const TrainConfig& train,
                                                  std::span<const double> target_std,
                                                  const Predictions& predictions,
                                                  std::span<const std::string> class_names) {
  if (!config::predicts_classes_or_values(model) && !model.transcript) return std::nullopt;
  Scorer scorer(model, train, class_names, predictions);
  if (model.transcript && !predictions.labels.empty())
    scorer.add_transcripts();
  else if (!predictions.labels.empty())
    scorer.add_classes();
  else if (!predictions.values.empty())
    scorer.add_values(target_std);
  return scorer.scores();
}

}  // namespace lockstep::train
