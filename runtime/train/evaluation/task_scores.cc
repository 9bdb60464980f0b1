#include "runtime/train/evaluation/task_scores.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/contrastive.h"
#include "runtime/graph/prediction.h"

namespace lockstep::train {
namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

TaskScoresLayout::TaskScoresLayout(const config::ModelTraits& model,
                                   const data::DataSummary& data,
                                   const graph::Graph& evaluation,
                                   int64_t lanes,
                                   int64_t samples,
                                   const RunConfig& config)
    : lanes(lanes) {
  if (graph::prediction_of(evaluation) == kNoTensor) return;
  const graph::Tensor& prediction = evaluation[graph::prediction_of(evaluation)];
  rows = samples * evaluation.loss_rows_per_sample;
  score =
      make_score({.model = model,
                  .columns = prediction.shape.columns(),
                  .lane_rows = prediction.shape.rows(),
                  .lane_samples = evaluation.shape(evaluation.inputs[graph::GraphIn::kInput])[0],
                  .rows = rows,
                  .samples = samples,
                  .best = config.eval.best,
                  .target_std = data.target_std,
                  .target_mean = data.target_mean,
                  .class_names = data.class_names,
                  .pairs = {.texts = graph::ops::vectors_of_sample(evaluation),
                            .batch = config.train.global_batch,
                            .symmetric = config.train.contrastive.symmetric,
                            .have_similarities = data.has_similarities}});
  if (score == nullptr) return;
  prediction_bytes = prediction.bytes();
  sample_bytes = score->sample_bytes();
  too_many = sample_bytes > kMaxSampleBytes;
  if (too_many) sample_bytes = 0;
}

size_t TaskScoresLayout::bytes() const {
  if (score == nullptr) return 0;
  return aligned(prediction_bytes) + aligned(exchange_bytes()) + aligned(score->count_bytes()) +
         aligned(sample_bytes);
}

bool TaskScoresLayout::has(EvalConfig::Metric metric) const {
  using Metric = EvalConfig::Metric;
  if (metric == Metric::kLoss || metric == Metric::kAccuracy) return true;
  return score != nullptr && score->has(metric) &&
         (sample_bytes > 0 || !score->needs_samples(metric));
}

int64_t evaluated_samples(const EvalConfig& eval, const data::Dataset& dataset) {
  return eval.max_samples > 0 ? std::min(eval.max_samples, dataset.samples()) : dataset.samples();
}

void require_all_vectors(const EvalConfig& eval,
                         const config::ModelTraits& model,
                         const TaskScoresLayout& layout) {
  if (model.scored_kind() != config::TargetKind::kSimilarity || !layout.too_many) return;
  const size_t each = layout.score->sample_bytes() / static_cast<size_t>(layout.rows);
  config::refuse_value(
      "eval.max_samples",
      eval.max_samples,
      "1 to {}: the vectors of all samples are compared with each other, and must fit into {} MiB",
      TaskScoresLayout::kMaxSampleBytes / (each + 1),
      TaskScoresLayout::kMaxSampleBytes >> 20);
}

void require_scores_of_best(const EvalConfig& eval,
                            const config::ModelTraits& model,
                            const TaskScoresLayout& layout) {
  if (config::has_metric(model, eval.best) && layout.has(eval.best)) return;
  if (layout.too_many)
    config::refuse_value(
        "eval.best",
        name_of(eval.best),
        fmt::format("another metric, or fewer than {} predictions (eval.max_samples): it needs "
                    "all of them in memory",
                    layout.rows));
  config::refuse_value(
      "eval.best",
      name_of(eval.best),
      fmt::format("a metric of the model's targets, which are {}{}",
                  config::description_of(model.scored_kind()),
                  model.outputs > 0 ? fmt::format(", with {} outputs", model.outputs) : ""));
}

TaskScores::TaskScores(const RunContext& context, std::span<std::byte> memory)
    : context_(context),
      layout_(context.model,
              context.data.summary,
              *context.graphs.evaluation,
              context.plan.sharding.lanes,
              evaluated_samples(context.config.eval, *context.data.eval),
              context.config),
      score_(layout_.score.get()) {
  if (score_ == nullptr) return;
  LOCKSTEP_CHECK(memory.size() >= layout_.bytes(), "{} bytes ", memory.size());
  const graph::Tensor& prediction =
      (*context.graphs.evaluation)[graph::prediction_of(*context.graphs.evaluation)];
  dtype_ = prediction.dtype;
  stride_ = prediction.row_stride();
  std::byte* next = memory.data();
  const auto take = [&](size_t bytes) {
    std::byte* const at = next;
    next += aligned(bytes);
    return at;
  };
  prediction_ = take(layout_.prediction_bytes);
  exchange_ = take(layout_.exchange_bytes());
  counts_ = take(score_->count_bytes());
  if (layout_.sample_bytes > 0) samples_ = take(layout_.sample_bytes);
  gather_.emplace(context.communicator, context.lane_shares(), layout_.lane_bytes(), exchange_);
}

void TaskScores::begin() {
  if (report_) report_.emplace();
  if (score_ == nullptr) return;
  score_->begin(counts_, samples_, report_ ? &*report_ : nullptr);
  std::memset(exchange_, 0, layout_.exchange_bytes());
}

// The first target of each sample is the one that the predictions are compared with.
const std::byte* TaskScores::targets_of(const data::LaneBatch& batch) {
  const std::vector<config::TargetPart>& parts = context_.data.summary.targets;
  if (parts.size() < 2) return batch.target;
  const size_t part = static_cast<size_t>(parts.front().elements()) * sizeof(int32_t);
  const size_t record = context_.data.eval->target().bytes();
  first_parts_.resize(static_cast<size_t>(batch.valid_samples) * part);
  for (int64_t i = 0; i < batch.valid_samples; ++i)
    std::memcpy(first_parts_.data() + static_cast<size_t>(i) * part,
                batch.target + static_cast<size_t>(i) * record,
                part);
  return first_parts_.data();
}

void TaskScores::lane_done(size_t lane, const data::LaneBatch& batch, int64_t rows) {
  if (score_ == nullptr) return;
  score_->write({.predictions = prediction_,
                 .dtype = dtype_,
                 .stride = stride_,
                 .targets = targets_of(batch),
                 .target_elements = context_.data.eval->target().shape.elements(),
                 .samples = batch.valid_samples,
                 .rows = rows,
                 .target_rows = context_.graphs.evaluation->loss_rows_per_sample},
                gather_->of(context_.lanes()[static_cast<int>(lane)]));
}

// Clears the records afterwards, because some lanes of the next step may not run.
void TaskScores::step_done() {
  if (score_ == nullptr) return;
  gather_->gather();
  for (int lane = 0; lane < layout_.lanes; ++lane)
    for (int64_t i = 0; i < score_->lane_records(); ++i)
      score_->add(gather_->of(lane) + static_cast<size_t>(i) * score_->record_bytes());
  std::memset(exchange_, 0, layout_.exchange_bytes());
}

metrics::TaskMetrics TaskScores::finish() {
  return score_ == nullptr ? metrics::TaskMetrics{} : score_->finish();
}

}  // namespace lockstep::train
