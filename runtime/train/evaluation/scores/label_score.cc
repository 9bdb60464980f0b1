// Scores of several yes-or-no answers (labels) for each row.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/metrics/ranked_scores.h"
#include "runtime/train/evaluation/task_score.h"

namespace lockstep::train {
namespace {

// A record: whether the row counts (i32), then a ScoredClass for each label.
class LabelScore final : public TaskScore {
 public:
  explicit LabelScore(const ScoreInput& input)
      : labels_(input.columns),
        lane_rows_(input.lane_rows),
        rows_(input.rows),
        ranked_(ranked_columns(input, labels_)) {}

  size_t record_bytes() const override {
    return sizeof(int32_t) + static_cast<size_t>(labels_) * sizeof(metrics::ScoredClass);
  }
  int64_t lane_records() const override { return lane_rows_; }
  size_t count_bytes() const override { return static_cast<size_t>(labels_) * sizeof(Counts); }
  size_t sample_bytes() const override { return metrics::RankedScores::bytes(rows_, ranked_); }
  bool needs_samples(EvalConfig::Metric metric) const override { return compares_ranks(metric); }

  void write(const ScoredLane& lane, std::byte* records) const override {
    const auto* const targets = reinterpret_cast<const float*>(lane.targets);
    lane.each_row([&](int64_t row, const auto& value) {
      const float* const target = targets + row * labels_;
      if (std::isnan(target[0])) return;
      std::byte* const record = records + static_cast<size_t>(row) * record_bytes();
      const int32_t counted = 1;
      std::memcpy(record, &counted, sizeof(counted));
      auto* const scored = reinterpret_cast<metrics::ScoredClass*>(record + sizeof(counted));
      for (int64_t c = 0; c < labels_; ++c) scored[c] = {value(c), target[c] > 0.5f};
    });
  }

  void begin(std::byte* counts, std::byte* samples, metrics::TaskReport* report) override {
    counts_ = {reinterpret_cast<Counts*>(counts), static_cast<size_t>(labels_)};
    std::ranges::fill(counts_, Counts{});
    counted_ = 0;
    ranks_ = {samples, rows_, samples == nullptr ? 0 : ranked_};
    report_ = report;
  }

  void add(const std::byte* record) override {
    int32_t counted;
    std::memcpy(&counted, record, sizeof(counted));
    if (counted == 0) return;
    ++counted_;
    const auto* const scored =
        reinterpret_cast<const metrics::ScoredClass*>(record + sizeof(counted));
    for (size_t c = 0; c < counts_.size(); ++c) {
      const bool predicted = scored[c].score > 0;
      counts_[c].predicted += predicted;
      counts_[c].wanted += scored[c].is_one;
      counts_[c].right += predicted && scored[c].is_one != 0;
    }
    for (int64_t c = 0; c < ranks_.columns(); ++c) ranks_.set(c, scored[c]);
    ranks_.next();
  }

  metrics::TaskMetrics finish() override {
    metrics::TaskMetrics metrics;
    double sum = 0;
    for (const Counts& counts : counts_) sum += counts.f1();
    metrics[metrics::kF1] = sum / static_cast<double>(labels_);
    ranks_.finish(&metrics);
    if (report_ == nullptr) return metrics;
    for (const Counts& counts : counts_) report_->labels.push_back(counts.scores());
    return metrics;
  }
  int64_t counted() const override { return counted_; }

 private:
  using Counts = metrics::ClassCounts::Counts;

  const int64_t labels_, lane_rows_, rows_;
  const int64_t ranked_;      // labels whose scores are kept: all or none
  std::span<Counts> counts_;  // (labels)
  int64_t counted_ = 0;
  metrics::RankedScores ranks_;
  metrics::TaskReport* report_ = nullptr;
};

}  // namespace

std::unique_ptr<TaskScore> label_score(const ScoreInput& input) {
  return std::make_unique<LabelScore>(input);
}

}  // namespace lockstep::train
