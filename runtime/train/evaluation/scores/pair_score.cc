// Scores of pairs and triplets of vectors: how often an anchor finds its positive among those of
// all samples, or how well cosines follow the similarities of the data. The loss is that of
// training, in batches of consecutive samples, because a lane's evaluation does not see other
// lanes.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/metrics/pair_metrics.h"
#include "runtime/train/evaluation/task_score.h"

namespace lockstep::train {
namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// A record: whether the sample counts (i32), its vectors (columns) f32, the place of their cosine
// f32, and its similarity f32. All samples are kept.
class PairScore final : public TaskScore {
 public:
  explicit PairScore(const ScoreInput& input) : input_(input) {}

  size_t record_bytes() const override { return sizeof(int32_t) + kept_sample_bytes(); }
  int64_t lane_records() const override { return input_.lane_rows; }
  size_t sample_bytes() const override {
    return kept_bytes() + metrics::ValueMetrics::scratch_bytes(input_.rows);
  }
  bool needs_samples(EvalConfig::Metric /*metric*/) const override { return true; }
  bool has(EvalConfig::Metric metric) const override {
    const bool correlates =
        metric == EvalConfig::Metric::kPearson || metric == EvalConfig::Metric::kSpearman;
    return correlates == input_.pairs.have_similarities;
  }

  void write(const ScoredLane& lane, std::byte* records) const override {
    const auto* const similarities = reinterpret_cast<const float*>(lane.targets);
    const bool have = input_.pairs.have_similarities;
    lane.each_row([&](int64_t row, const auto& value) {
      std::byte* const record = records + static_cast<size_t>(row) * record_bytes();
      const int32_t counted = 1;
      std::memcpy(record, &counted, sizeof(counted));
      auto* const values = reinterpret_cast<float*>(record + sizeof(counted));
      for (int64_t c = 0; c < input_.columns; ++c) values[c] = value(c);
      values[input_.columns + 1] = have ? similarities[row] : 0;
    });
  }

  void begin(std::byte* /*counts*/, std::byte* samples, metrics::TaskReport* /*report*/) override {
    samples_ = samples;
    kept_ = 0;
  }

  void add(const std::byte* record) override {
    int32_t counted;
    std::memcpy(&counted, record, sizeof(counted));
    if (counted == 0 || samples_ == nullptr) return;
    std::memcpy(samples_ + static_cast<size_t>(kept_++) * kept_sample_bytes(),
                record + sizeof(counted),
                kept_sample_bytes());
  }

  metrics::TaskMetrics finish() override {
    if (samples_ == nullptr || kept_ == 0) return {};
    auto* const data = reinterpret_cast<float*>(samples_);
    const metrics::PairVectors vectors = {.data = data,
                                          .samples = kept_,
                                          .texts = input_.pairs.texts,
                                          .width = input_.columns / input_.pairs.texts,
                                          .stride = input_.columns + 2};
    loss_ = metrics::contrastive_loss_of(vectors,
                                         input_.pairs.batch,
                                         input_.pairs.symmetric,
                                         /*negatives=*/!input_.pairs.have_similarities);
    metrics::TaskMetrics found;
    if (!input_.pairs.have_similarities) {
      const metrics::Recalls recalls = metrics::recalls_of(vectors);
      found[metrics::kRecallAt1] = recalls.at_1;
      found[metrics::kRecallAt5] = recalls.at_5;
      found[metrics::kRecallAt10] = recalls.at_10;
      return found;
    }
    for (int64_t i = 0; i < kept_; ++i)
      data[i * vectors.stride + input_.columns] = metrics::cosine_of(vectors, i);
    const metrics::TaskMetrics of_values =
        metrics::ValueMetrics::of({.predictions = data + input_.columns,
                                   .targets = data + input_.columns + 1,
                                   .rows = kept_,
                                   .columns = 1,
                                   .stride = vectors.stride},
                                  samples_ + kept_bytes());
    for (const metrics::TaskMetric metric : {metrics::kPearson, metrics::kSpearman})
      found[metric] = of_values[metric];
    return found;
  }
  int64_t counted() const override { return kept_; }
  std::optional<double> loss() const override { return loss_; }

 private:
  size_t kept_sample_bytes() const {
    return static_cast<size_t>(input_.columns + 2) * sizeof(float);
  }
  size_t kept_bytes() const {
    return aligned(static_cast<size_t>(input_.rows) * kept_sample_bytes());
  }

  const ScoreInput input_;
  std::byte* samples_ = nullptr;
  int64_t kept_ = 0;  // samples in it
  std::optional<double> loss_;
};

}  // namespace

std::unique_ptr<TaskScore> pair_score(const ScoreInput& input) {
  return std::make_unique<PairScore>(input);
}

}  // namespace lockstep::train
