// Scores of classes of pixels. Ranks exchange the counts of a lane, not its pixels.
#include <cstring>
#include <optional>

#include "runtime/train/evaluation/task_score.h"

namespace lockstep::train {
namespace {

using Counts = metrics::ClassCounts::Counts;

class PixelScore final : public TaskScore {
 public:
  explicit PixelScore(const ScoreInput& input) : classes_(static_cast<size_t>(input.columns)) {}

  // A record has the counts of each class in a lane.
  size_t record_bytes() const override { return classes_ * sizeof(Counts); }
  int64_t lane_records() const override { return 1; }
  size_t count_bytes() const override { return classes_ * sizeof(Counts); }
  bool needs_samples(EvalConfig::Metric /*metric*/) const override { return false; }

  void write(const ScoredLane& lane, std::byte* records) const override {
    metrics::ClassCounts counts({reinterpret_cast<Counts*>(records), classes_});
    const auto* const targets = reinterpret_cast<const int32_t*>(lane.targets);
    const auto classes = static_cast<int32_t>(classes_);
    lane.each_row([&](int64_t row, const auto& value) {
      if (targets[row] < 0) return;
      int32_t predicted = 0;  // the first of the largest, if there are several
      float largest = value(0);
      for (int32_t c = 1; c < classes; ++c) {
        const float logit = value(c);
        if (!(logit > largest)) continue;
        largest = logit;
        predicted = c;
      }
      counts.add(predicted, targets[row]);
    });
  }

  void begin(std::byte* counts, std::byte* /*samples*/, metrics::TaskReport* /*report*/) override {
    counts_.emplace(std::span(reinterpret_cast<Counts*>(counts), classes_));
  }
  void add(const std::byte* record) override {
    counts_->add(std::span(reinterpret_cast<const Counts*>(record), classes_));
  }
  metrics::TaskMetrics finish() override {
    metrics::TaskMetrics metrics;
    metrics[metrics::kMeanIou] = counts_->mean_iou();
    return metrics;
  }
  int64_t counted() const override { return counts_ ? counts_->total() : 0; }

 private:
  const size_t classes_;
  std::optional<metrics::ClassCounts> counts_;
};

}  // namespace

std::unique_ptr<TaskScore> pixel_score(const ScoreInput& input) {
  return std::make_unique<PixelScore>(input);
}

}  // namespace lockstep::train
