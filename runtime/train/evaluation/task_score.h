#pragma once
// The interface of a kind of score: the metrics that an evaluation computes from predictions and
// targets. TaskScores carries the records of all ranks to it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/base/error.h"
#include "runtime/config/task.h"
#include "runtime/metrics/task_metrics.h"
#include "runtime/train/number_types.h"

namespace lockstep::train {

// How vectors of texts are compared with each other.
struct PairOptions {
  int64_t texts = 1;               // of a sample
  int64_t batch = 1;               // samples of the batches of the loss
  bool symmetric = false;          // as train.contrastive
  bool have_similarities = false;  // the targets
};

// What a score knows when it is made. Borrows all of it.
struct ScoreInput {
  const config::ModelTraits& model;
  int64_t columns = 0;    // of a prediction
  int64_t lane_rows = 0;  // predictions of a lane
  int64_t lane_samples = 0;
  int64_t rows = 0;     // predictions of the evaluation, at most
  int64_t samples = 0;  // of the evaluation
  // The metric of eval.best, which is worth more memory than others.
  EvalConfig::Metric best = EvalConfig::Metric::kLoss;
  // (columns) or empty: a value in the units of the file is value * std + mean.
  std::span<const double> target_std = {}, target_mean = {};
  std::span<const std::string> class_names = {};  // or empty
  PairOptions pairs = {};
};

// The predictions of a lane, and its targets.
struct ScoredLane {
  const std::byte* predictions = nullptr;  // (samples, rows, columns), at `stride` elements
  DType dtype = DType::kF32;
  int64_t stride = 0;
  const std::byte* targets = nullptr;  // one after the other
  int64_t target_elements = 1;         // of a sample
  int64_t samples = 0;                 // those that count
  int64_t rows = 1;                    // of each sample that were computed
  int64_t target_rows = 1;             // of each sample that has a target

  // Calls f(row, value) for each row that was computed: `row` is its place among the rows of all
  // targets, and value(c) its prediction in column c.
  template <typename F>
  void each_row(const F& f) const {
    with_numbers(predictions, dtype, [&](const auto* numbers) {
      for (int64_t computed = 0; computed < samples * rows; ++computed) {
        const auto* const at = numbers + computed * stride;
        f(computed / rows * target_rows + computed % rows,
          [at](int64_t column) { return to_float(at[column]); });
      }
    });
  }
};

// One kind of score. The rank of a lane writes its records; then every rank adds the records of all
// lanes in the order of the samples, so every rank has the same numbers on any number of ranks.
class TaskScore {
 public:
  virtual ~TaskScore() = default;

  // A record is what ranks exchange about a row or a sample. One of zero bytes does not count.
  virtual size_t record_bytes() const = 0;
  virtual int64_t lane_records() const = 0;
  // Memory for counts; and for all samples of the evaluation, with scratch memory, or 0.
  virtual size_t count_bytes() const { return 0; }
  virtual size_t sample_bytes() const { return 0; }
  // Whether the metric compares samples with each other, so that it needs all of them.
  virtual bool needs_samples(EvalConfig::Metric metric) const = 0;
  // Whether these data have the metric, of those of the model (config::has_metric()).
  virtual bool has(EvalConfig::Metric /*metric*/) const { return true; }

  // Writes the records of a lane, which are zero bytes before.
  virtual void write(const ScoredLane& lane, std::byte* records) const = 0;

  // Begins an evaluation. `counts`: count_bytes(). `samples`: sample_bytes(), or null if they are
  // not kept. Both are borrowed and aligned to 64 bytes. `report`: to be filled by finish(), or
  // null.
  virtual void begin(std::byte* counts, std::byte* samples, metrics::TaskReport* report) = 0;
  virtual void add(const std::byte* record) = 0;
  virtual metrics::TaskMetrics finish() = 0;
  // After finish(): the loss, if the evaluation graph does not compute it.
  virtual std::optional<double> loss() const { return std::nullopt; }
  // The predictions so far that count.
  virtual int64_t counted() const = 0;
};

// Whether the metric compares samples by their scores, as metrics::RankedScores does.
bool compares_ranks(EvalConfig::Metric metric);
// `columns` if RankedScores is to keep that many scores of each sample, otherwise 0.
int64_t ranked_columns(const ScoreInput& input, int64_t columns);

// The score for the model's targets; null if there is none.
std::unique_ptr<TaskScore> make_score(const ScoreInput& input);

// The kinds, each in its own file of scores/.
std::unique_ptr<TaskScore> class_score(const ScoreInput& input);
std::unique_ptr<TaskScore> label_score(const ScoreInput& input);
std::unique_ptr<TaskScore> pair_score(const ScoreInput& input);
std::unique_ptr<TaskScore> pixel_score(const ScoreInput& input);
std::unique_ptr<TaskScore> value_score(const ScoreInput& input);
std::unique_ptr<TaskScore> transcript_score(const ScoreInput& input);

}  // namespace lockstep::train
