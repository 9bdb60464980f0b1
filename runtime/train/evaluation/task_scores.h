#pragma once
// Gathers an evaluation's predictions from all ranks, and computes the metrics of the task from
// them. TaskScore has what differs between kinds of predictions.

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/gather/lane_gather.h"
#include "runtime/config/task.h"
#include "runtime/data/loader.h"
#include "runtime/graph/graph.h"
#include "runtime/metrics/task_metrics.h"
#include "runtime/train/evaluation/task_score.h"
#include "runtime/train/run_context.h"

namespace lockstep::train {

// Layout of the memory of TaskScores, which has a row in the plan. It holds a lane's predictions
// and one step's records of all ranks. For metrics that compare samples with each other (AUC, and
// the metrics of values) it also holds what they need of all samples of the evaluation, on every
// rank.
struct TaskScoresLayout {
  // If all samples would take more than this, they are not kept.
  static constexpr size_t kMaxSampleBytes = size_t{1} << 30;

  std::unique_ptr<TaskScore> score = nullptr;  // null: predictions have no metrics but the loss's
  int64_t lanes = 0;                           // of all ranks
  int64_t rows = 0;                            // predictions of the evaluation, at most
  size_t prediction_bytes = 0;                 // of a lane
  size_t sample_bytes = 0;  // for all samples, with scratch memory; 0: samples are not kept
  bool too_many = false;    // all samples would take more than kMaxSampleBytes

  // `evaluation`: a graph that ends in a loss; `samples`: number of samples in the evaluation.
  // Borrows the data, of which only the summary matters.
  TaskScoresLayout(const config::ModelTraits& model,
                   const data::DataSummary& data,
                   const graph::Graph& evaluation,
                   int64_t lanes,
                   int64_t samples,
                   const RunConfig& config);
  // Records of a lane.
  size_t lane_bytes() const {
    return static_cast<size_t>(score->lane_records()) * score->record_bytes();
  }
  size_t exchange_bytes() const { return static_cast<size_t>(lanes) * lane_bytes(); }
  size_t bytes() const;
  // Whether evaluations of a model that has this metric will compute it.
  bool has(EvalConfig::Metric metric) const;
};

// The number of samples in an evaluation.
int64_t evaluated_samples(const EvalConfig& eval, const data::Dataset& dataset);

// Throws ConfigError if the vectors of all samples of the evaluation, from which alone the loss and
// the metrics of a contrastive loss are computed, would take more than kMaxSampleBytes.
void require_all_vectors(const EvalConfig& eval,
                         const config::ModelTraits& model,
                         const TaskScoresLayout& layout);

// Throws ConfigError if the task does not have the metric of eval.best, or not for this number of
// samples.
void require_scores_of_best(const EvalConfig& eval,
                            const config::ModelTraits& model,
                            const TaskScoresLayout& layout);

// Collects an evaluation's predictions. Every rank sees all records in the order of the samples, so
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
  // After finish(): the loss, if the evaluation graph does not compute it.
  std::optional<double> loss() const { return score_ == nullptr ? std::nullopt : score_->loss(); }
  // Predictions so far that count.
  int64_t counted() const { return score_ == nullptr ? 0 : score_->counted(); }

 private:
  const std::byte* targets_of(const data::LaneBatch& batch);

  const RunContext& context_;
  TaskScoresLayout layout_;
  TaskScore* const score_;  // null: none
  DType dtype_ = DType::kF32;
  int64_t stride_ = 0;                  // of predictions, in elements
  std::vector<std::byte> first_parts_;  // a lane's targets, if samples have several
  std::byte* prediction_ = nullptr;
  std::byte* exchange_ = nullptr;                  // (lanes, lane_records) records,
  std::optional<collectives::LaneGather> gather_;  // of which each rank writes its lanes'
  std::byte* counts_ = nullptr;
  std::byte* samples_ = nullptr;  // of all samples, with scratch memory; null: none are kept
  std::optional<metrics::TaskReport> report_;
};

}  // namespace lockstep::train
