#pragma once
// Gathers an evaluation's predictions from all ranks, and computes the metrics of the task from
// them.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "collectives/gather/lane_gather.h"
#include "runtime/config/task.h"
#include "runtime/data/loader.h"
#include "runtime/graph/graph.h"
#include "runtime/metrics/task_metrics.h"
#include "runtime/train/run_context.h"

namespace lockstep::train {

// Layout of the memory of TaskScores, which has a row in the plan. It holds a lane's predictions
// and one step's records of all ranks. For metrics that compare samples with each other (AUC, and
// the metrics of values) it also holds the records of all samples of the evaluation, on every rank.
struct TaskScoresLayout {
  // If all samples would take more than this, they are not kept.
  static constexpr size_t kMaxSampleBytes = size_t{1} << 30;

  config::Task task = config::Task::kOther;
  int64_t columns = 0;    // of a prediction
  int64_t lane_rows = 0;  // predictions of a lane
  int64_t lanes = 0;      // of all ranks
  int64_t rows = 0;       // of the evaluation, at most
  size_t prediction_bytes = 0, row_bytes = 0, count_bytes = 0;
  size_t sample_bytes = 0;  // for all samples, with scratch memory; 0: samples are not kept
  bool too_many = false;    // all samples would take more than kMaxSampleBytes

  TaskScoresLayout() = default;
  // `evaluation`: a graph that ends in a loss; `samples`: number of samples in the evaluation.
  TaskScoresLayout(const config::ModelTraits& model,
                   const graph::Graph& evaluation,
                   int64_t lanes,
                   int64_t samples);
  size_t exchange_bytes() const { return static_cast<size_t>(lanes * lane_rows) * row_bytes; }
  size_t bytes() const;
  // Whether evaluations will compute this metric.
  bool has(EvalConfig::Metric metric) const;
};

// The number of samples in an evaluation.
int64_t evaluated_samples(const EvalConfig& eval, const data::Dataset& dataset);

// Throws ConfigError if the task does not have the metric of eval.best, or not for this number of
// samples.
void require_scores_of_best(const EvalConfig& eval,
                            const config::ModelTraits& model,
                            const TaskScoresLayout& layout);

// What ranks exchange about the prediction of a class.
struct ClassRecord {
  int32_t predicted, target;  // -1: does not count
  float score;                // of class 1, if there are two
};

// Collects an evaluation's predictions. Every rank sees all rows in the order of the samples, so
// every rank computes the same metrics.
class TaskScores {
 public:
  // `memory`: TaskScoresLayout::bytes(), borrowed.
  TaskScores(const RunContext& context, std::span<std::byte> memory);

  // Where the evaluation must write a lane's predictions; null: they are not needed.
  std::byte* prediction() const { return prediction_; }
  void begin();
  // A local lane's predictions are complete; `batch`: its inputs and targets.
  void lane_done(size_t lane, const data::LaneBatch& batch, int64_t rows);
  // All lanes of a step are done. Collective.
  void step_done();
  metrics::TaskMetrics finish();
  // Makes the next evaluation also keep a report, which takes more memory than the plan has.
  void keep_report() { report_.emplace(); }
  // The report of the last evaluation; empty if the task has none.
  const metrics::TaskReport& report() const { return *report_; }
  // Predictions of classes so far.
  int64_t classes_counted() const { return counts_.total(); }

 private:
  void add_class(const ClassRecord& record);
  void add_values(const std::byte* record);
  void forget_step();

  const RunContext& context_;
  TaskScoresLayout layout_;
  DType dtype_ = DType::kF32;
  int64_t stride_ = 0;  // of predictions, in elements
  std::byte* prediction_ = nullptr;
  std::byte* exchange_ = nullptr;                  // (lanes, lane_rows) records,
  std::optional<collectives::LaneGather> gather_;  // of which each rank writes its lanes'
  std::byte* samples_ = nullptr;  // of all samples, with scratch memory; null: none are kept
  int64_t kept_ = 0;              // rows in it
  metrics::ClassCounts counts_;
  std::optional<metrics::TaskReport> report_;
};

}  // namespace lockstep::train
