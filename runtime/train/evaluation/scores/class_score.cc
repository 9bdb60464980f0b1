// Scores of classes, one for each row: by softmax, or for a single yes or no by sigmoid.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "runtime/metrics/ranked_scores.h"
#include "runtime/train/evaluation/task_score.h"

namespace lockstep::train {
namespace {

// A record begins with this; `scores` floats follow.
struct ClassRecord {
  int32_t predicted;
  int32_t wanted;  // the target's class plus 1; 0: does not count
};

// The log-odds of each class, log p / (1 - p) for p = softmax(x). They rank samples as p does, but
// differ where p is rounded to 1. With the exponentials e relative to the largest of the others,
// for class c they are x[c] - log(sum of e of the others).
template <typename Value>
void write_log_odds(const Value& value, int64_t classes, float* to) {
  int64_t first = 0;  // the first of the largest
  for (int64_t c = 1; c < classes; ++c)
    if (value(c) > value(first)) first = c;
  double second = -INFINITY, sum = 0, others = 0;
  for (int64_t c = 0; c < classes; ++c)
    if (c != first) second = std::max(second, static_cast<double>(value(c)));
  const double largest = value(first);
  for (int64_t c = 0; c < classes; ++c) {
    sum += std::exp(static_cast<double>(value(c)) - largest);
    if (c != first) others += std::exp(static_cast<double>(value(c)) - second);
  }
  for (int64_t c = 0; c < classes; ++c) {
    const double x = value(c);
    to[c] = static_cast<float>(c == first ? x - second - std::log(others)
                                          : x - largest - std::log(sum - std::exp(x - largest)));
  }
}

class ClassScore final : public TaskScore {
 public:
  explicit ClassScore(const ScoreInput& input)
      : kind_(input.model.scored_kind()),
        columns_(input.columns),
        lane_rows_(input.lane_rows),
        rows_(input.rows),
        classes_(kind_ == config::TargetKind::kYesNo ? 2 : input.columns),
        ranked_(classes_ < 2 ? 0 : ranked_columns(input, classes_ == 2 ? 1 : classes_)) {}

  size_t record_bytes() const override {
    return sizeof(ClassRecord) + static_cast<size_t>(ranked_) * sizeof(float);
  }
  int64_t lane_records() const override { return lane_rows_; }
  size_t count_bytes() const override {
    return static_cast<size_t>(classes_) * sizeof(metrics::ClassCounts::Counts);
  }
  size_t sample_bytes() const override { return metrics::RankedScores::bytes(rows_, ranked_); }
  bool needs_samples(EvalConfig::Metric metric) const override { return compares_ranks(metric); }

  void write(const ScoredLane& lane, std::byte* records) const override {
    lane.each_row([&](int64_t row, const auto& value) {
      std::byte* const at = records + static_cast<size_t>(row) * record_bytes();
      const int64_t target = target_of(lane.targets, row);
      if (target < 0 || target >= classes_) return;
      ClassRecord& record = *reinterpret_cast<ClassRecord*>(at);
      auto* const scores = reinterpret_cast<float*>(at + sizeof(ClassRecord));
      record.wanted = static_cast<int32_t>(target) + 1;
      if (kind_ == config::TargetKind::kYesNo) {
        record.predicted = value(0) > 0;
        if (ranked_ > 0) scores[0] = value(0);
        return;
      }
      record.predicted = 0;  // the first of the largest, if there are several
      for (int64_t c = 1; c < columns_; ++c)
        if (value(c) > value(record.predicted)) record.predicted = static_cast<int32_t>(c);
      if (ranked_ == 1) scores[0] = value(1) - value(0);
      if (ranked_ > 1) write_log_odds(value, columns_, scores);
    });
  }

  void begin(std::byte* counts, std::byte* samples, metrics::TaskReport* report) override {
    counts_.emplace(std::span(reinterpret_cast<metrics::ClassCounts::Counts*>(counts),
                              static_cast<size_t>(classes_)));
    ranks_ = {samples, rows_, samples == nullptr ? 0 : ranked_};
    report_ = report;
    if (report_ != nullptr) report_->classes.emplace();
  }

  void add(const std::byte* record) override {
    ClassRecord found;
    std::memcpy(&found, record, sizeof(found));
    if (found.wanted == 0) return;
    const int32_t target = found.wanted - 1;
    counts_->add(found.predicted, target);
    if (report_ != nullptr) report_->classes->add(found.predicted, target);
    const auto* const scores = reinterpret_cast<const float*>(record + sizeof(found));
    for (int64_t i = 0; i < ranks_.columns(); ++i)
      ranks_.set(i, {scores[i], classes_ == 2 ? target == 1 : target == i});
    ranks_.next();
  }

  metrics::TaskMetrics finish() override {
    metrics::TaskMetrics metrics;
    metrics[metrics::kF1] = counts_->f1();
    metrics[metrics::kMatthews] = counts_->matthews();
    ranks_.finish(&metrics);
    return metrics;
  }
  int64_t counted() const override { return counts_ ? counts_->total() : 0; }

 private:
  // The class of a row; below 0: none. That of a distribution is the first of its largest.
  int64_t target_of(const std::byte* targets, int64_t row) const {
    if (kind_ != config::TargetKind::kYesNo && kind_ != config::TargetKind::kDistribution)
      return reinterpret_cast<const int32_t*>(targets)[row];
    const float* const values = reinterpret_cast<const float*>(targets) + row * columns_;
    if (std::isnan(values[0])) return -1;
    return columns_ == 1 ? (values[0] > 0.5f ? 1 : 0)
                         : std::max_element(values, values + columns_) - values;
  }

  const config::TargetKind kind_;
  const int64_t columns_, lane_rows_, rows_, classes_;
  const int64_t ranked_;  // scores of a record: 1 for two classes, one for each class, or none
  std::optional<metrics::ClassCounts> counts_;
  metrics::RankedScores ranks_;
  metrics::TaskReport* report_ = nullptr;
};

}  // namespace

std::unique_ptr<TaskScore> class_score(const ScoreInput& input) {
  return std::make_unique<ClassScore>(input);
}

}  // namespace lockstep::train
