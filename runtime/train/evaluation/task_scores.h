#pragma once
// What an evaluation predicts for each sample, gathered from the ranks, and the metrics of the task
// from it.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "runtime/config/task.h"
#include "runtime/data/loader.h"
#include "runtime/graph/graph.h"
#include "runtime/metrics/task_metrics.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

// The memory of it, which the plan has a row for: a lane's predictions, a step's of all ranks and,
// for metrics that compare samples with each other (AUC, and those of values), all samples' of the
// evaluation, on every rank.
struct TaskScoresLayout {
  // Larger ones are not kept.
  static constexpr size_t kMostSampleBytes = size_t{1} << 30;

  Task task = Task::kOther;
  int64_t columns = 0;    // of a prediction
  int64_t lane_rows = 0;  // predictions of a lane
  int64_t lanes = 0;      // of all ranks
  int64_t rows = 0;       // of the evaluation, at most
  size_t prediction_bytes = 0, row_bytes = 0, count_bytes = 0;
  size_t sample_bytes = 0;  // all samples', with room to work; 0: none are kept
  bool too_many = false;    // they would take more than kMostSampleBytes

  TaskScoresLayout() = default;
  // `evaluation`: a graph that ends in a loss; `samples`: of the evaluation.
  TaskScoresLayout(const ModelTraits& model,
                   const Graph& evaluation,
                   int64_t lanes,
                   int64_t samples);
  size_t exchange_bytes() const { return static_cast<size_t>(lanes * lane_rows) * row_bytes; }
  size_t bytes() const;
  // Whether evaluations will have it.
  bool has(EvalConfig::Metric metric) const;
};

// How many samples an evaluation has.
int64_t evaluated_samples(const EvalConfig& eval, const Dataset& dataset);

// Refuses an eval.best that the task has not, or not of so many samples. Throws ConfigError.
void check_best(const EvalConfig& eval, const ModelTraits& model, const TaskScoresLayout& layout);

// What ranks tell each other of a prediction of a class.
struct ClassRecord {
  int32_t predicted, target;  // target -1: it does not count
  float score;                // of class 1 of two
};

// Collects an evaluation's predictions. Every rank comes to the same metrics: each sees all rows in
// the order of the samples.
class TaskScores {
 public:
  // `memory`: TaskScoresLayout::bytes(), borrowed.
  TaskScores(const RunParts& parts, std::span<std::byte> memory);

  // Where the evaluation is to leave a lane's predictions; null: nobody asks for them.
  std::byte* prediction() const { return prediction_; }
  void begin();
  // A local lane's predictions lie there; `batch`: what it ran on.
  void lane_done(size_t lane, const LaneBatch& batch, int64_t rows);
  // All lanes of a step are done. All ranks together.
  void step_done();
  TaskMetrics finish();
  // Predictions of classes so far.
  int64_t classes_counted() const { return counts_.total(); }

 private:
  void add_class(const ClassRecord& record);
  void add_values(const std::byte* record);
  void forget_step();

  const RunParts& parts_;
  TaskScoresLayout layout_;
  DType dtype_ = DType::kF32;
  int64_t stride_ = 0;          // of predictions, in elements
  std::vector<size_t> places_;  // in the exchange, in lanes, of every lane
  std::byte* prediction_ = nullptr;
  std::byte* exchange_ = nullptr;  // (ranks, local lanes, lane_rows) records
  std::byte* samples_ = nullptr;   // of all samples, and room to work; null: none are kept
  int64_t kept_ = 0;               // rows in it
  ClassCounts counts_;
};

}  // namespace lockstep
