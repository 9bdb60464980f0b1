// Scores of values.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/train/evaluation/task_score.h"

namespace lockstep::train {
namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// A record: whether the row counts (i32), then predictions (columns) and targets (columns) f32. All
// rows are kept.
class ValueScore final : public TaskScore {
 public:
  explicit ValueScore(const ScoreInput& input)
      : columns_(input.columns),
        lane_rows_(input.lane_rows),
        rows_(input.rows),
        std_(input.target_std),
        mean_(input.target_mean) {}

  size_t record_bytes() const override { return sizeof(int32_t) + value_bytes(); }
  int64_t lane_records() const override { return lane_rows_; }
  size_t sample_bytes() const override {
    return kept_bytes() + metrics::ValueMetrics::scratch_bytes(rows_);
  }
  bool needs_samples(EvalConfig::Metric /*metric*/) const override { return true; }

  void write(const ScoredLane& lane, std::byte* records) const override {
    const auto* const targets = reinterpret_cast<const float*>(lane.targets);
    lane.each_row([&](int64_t row, const auto& value) {
      const float* const target = targets + row * columns_;
      if (std::any_of(target, target + columns_, [](float x) { return std::isnan(x); })) return;
      std::byte* const record = records + static_cast<size_t>(row) * record_bytes();
      const int32_t counted = 1;
      std::memcpy(record, &counted, sizeof(counted));
      auto* const values = reinterpret_cast<float*>(record + sizeof(counted));
      for (int64_t c = 0; c < columns_; ++c) values[c] = value(c);
      std::memcpy(values + columns_, target, value_bytes() / 2);
    });
  }

  void begin(std::byte* /*counts*/, std::byte* samples, metrics::TaskReport* report) override {
    samples_ = samples;
    report_ = report;
    kept_ = 0;
  }

  void add(const std::byte* record) override {
    int32_t counted;
    std::memcpy(&counted, record, sizeof(counted));
    if (counted == 0 || samples_ == nullptr) return;
    std::memcpy(samples_ + static_cast<size_t>(kept_++) * value_bytes(),
                record + sizeof(counted),
                value_bytes());
  }

  metrics::TaskMetrics finish() override {
    if (samples_ == nullptr || kept_ == 0) return {};
    const auto* const values = reinterpret_cast<const float*>(samples_);
    const metrics::ValueMetrics::Samples samples = {.predictions = values,
                                                    .targets = values + columns_,
                                                    .rows = kept_,
                                                    .columns = columns_,
                                                    .stride = 2 * columns_,
                                                    .scale = std_,
                                                    .shift = mean_};
    std::byte* const scratch = samples_ + kept_bytes();
    for (int64_t c = 0; report_ != nullptr && c < columns_; ++c)
      report_->values.push_back(metrics::ValueMetrics::of_column(samples, c, scratch));
    return metrics::ValueMetrics::of(samples, scratch);
  }
  int64_t counted() const override { return kept_; }

 private:
  size_t value_bytes() const { return static_cast<size_t>(2 * columns_) * sizeof(float); }
  size_t kept_bytes() const { return aligned(static_cast<size_t>(rows_) * value_bytes()); }

  const int64_t columns_, lane_rows_, rows_;
  const std::span<const double> std_, mean_;
  std::byte* samples_ = nullptr;
  int64_t kept_ = 0;  // rows in it
  metrics::TaskReport* report_ = nullptr;
};

}  // namespace

std::unique_ptr<TaskScore> value_score(const ScoreInput& input) {
  return std::make_unique<ValueScore>(input);
}

}  // namespace lockstep::train
