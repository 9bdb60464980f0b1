#include "runtime/train/evaluation/task_scores.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/graph/prediction.h"
#include "runtime/train/number_types.h"

namespace lockstep::train {
namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Bytes of a record of values. Record: whether it counts (i32), predictions and targets (columns)
// f32.
size_t value_bytes(int64_t columns) { return static_cast<size_t>(2 * columns) * sizeof(float); }

}  // namespace

TaskScoresLayout::TaskScoresLayout(const config::ModelTraits& model,
                                   const graph::Graph& evaluation,
                                   int64_t lanes,
                                   int64_t samples)
    : task(graph::prediction_of(evaluation) == kNoTensor ? config::Task::kOther
                                                         : config::task_of(model)),
      lanes(lanes) {
  if (task == config::Task::kOther) return;
  const graph::Tensor& prediction = evaluation[graph::prediction_of(evaluation)];
  columns = prediction.shape.columns();
  if (task == config::Task::kYesNo && columns > 1) {
    task = config::Task::kOther;
    return;
  }
  lane_rows = prediction.shape.rows();
  rows = samples * evaluation.loss_rows_per_sample;
  prediction_bytes = prediction.bytes();
  const bool values = task == config::Task::kValues;
  row_bytes = values ? sizeof(int32_t) + value_bytes(columns) : sizeof(ClassRecord);
  const auto n = static_cast<size_t>(rows);
  if (values) {
    sample_bytes = aligned(n * value_bytes(columns)) + metrics::ValueMetrics::scratch_bytes(rows);
  } else {
    const int64_t classes = task == config::Task::kYesNo ? 2 : columns;
    count_bytes = static_cast<size_t>(classes) * sizeof(metrics::ClassCounts::Counts);
    if (classes == 2) sample_bytes = n * sizeof(metrics::ScoredClass);
  }
  too_many = sample_bytes > kMaxSampleBytes;
  if (too_many) sample_bytes = 0;
}

size_t TaskScoresLayout::bytes() const {
  return aligned(prediction_bytes) + aligned(exchange_bytes()) + aligned(count_bytes) +
         aligned(sample_bytes);
}

bool TaskScoresLayout::has(EvalConfig::Metric metric) const {
  using Metric = EvalConfig::Metric;
  switch (metric) {
    case Metric::kLoss:
    case Metric::kAccuracy: return true;
    case Metric::kF1:
    case Metric::kMatthews: return task == config::Task::kClasses || task == config::Task::kYesNo;
    case Metric::kAuc: return task != config::Task::kValues && sample_bytes > 0;
    default: return task == config::Task::kValues && sample_bytes > 0;
  }
}

int64_t evaluated_samples(const EvalConfig& eval, const data::Dataset& dataset) {
  return eval.max_samples > 0 ? std::min(eval.max_samples, dataset.samples()) : dataset.samples();
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
      fmt::format("a metric of the model's task; AUC needs two classes, and the model has "
                  "{} outputs",
                  model.outputs));
}

TaskScores::TaskScores(const RunContext& context, std::span<std::byte> memory)
    : context_(context),
      layout_(context.model,
              *context.graphs.evaluation,
              context.plan.sharding.lanes,
              evaluated_samples(context.config.eval, *context.data.eval)),
      counts_({}) {
  if (layout_.task == config::Task::kOther) return;
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
  auto* const counts = reinterpret_cast<metrics::ClassCounts::Counts*>(take(layout_.count_bytes));
  counts_ =
      metrics::ClassCounts({counts, layout_.count_bytes / sizeof(metrics::ClassCounts::Counts)});
  if (layout_.sample_bytes > 0) samples_ = take(layout_.sample_bytes);
  gather_.emplace(context.communicator,
                  context.lane_shares(),
                  static_cast<size_t>(layout_.lane_rows) * layout_.row_bytes,
                  exchange_);
}

void TaskScores::begin() {
  if (report_) report_.emplace();
  if (layout_.task == config::Task::kOther) return;
  if (report_ && layout_.task != config::Task::kValues) report_->classes.emplace();
  counts_.clear();
  kept_ = 0;
  forget_step();
}

// Marks all rows as not counting, because some lanes may not run.
void TaskScores::forget_step() {
  const size_t rows = static_cast<size_t>(layout_.lanes * layout_.lane_rows);
  if (layout_.task == config::Task::kValues) {
    for (size_t i = 0; i < rows; ++i) std::memset(exchange_ + i * layout_.row_bytes, 0, 4);
  } else {
    auto* const records = reinterpret_cast<ClassRecord*>(exchange_);
    std::fill_n(records, rows, ClassRecord{0, -1, 0});
  }
}

void TaskScores::lane_done(size_t lane, const data::LaneBatch& batch, int64_t rows) {
  if (layout_.task == config::Task::kOther) return;
  const int number = context_.lanes()[static_cast<int>(lane)];
  std::byte* const records = gather_->of(number);
  const int64_t columns = layout_.columns;
  // Rows of a sample's targets; those after `rows` were not computed.
  const int64_t targets = context_.graphs.evaluation->loss_rows_per_sample;
  with_numbers(prediction_, dtype_, [&](const auto* numbers) {
    const auto value = [numbers](int64_t i) { return to_float(numbers[i]); };
    for (int64_t computed = 0; computed < batch.valid_samples * rows; ++computed) {
      const int64_t at = computed * stride_, row = computed / rows * targets + computed % rows;
      std::byte* const record = records + static_cast<size_t>(row) * layout_.row_bytes;
      if (layout_.task == config::Task::kValues) {
        const int32_t counted = 1;
        std::memcpy(record, &counted, sizeof(counted));
        float* const values = reinterpret_cast<float*>(record + sizeof(counted));
        for (int64_t c = 0; c < columns; ++c) values[c] = value(at + c);
        std::memcpy(values + columns,
                    batch.target + static_cast<size_t>(row * columns) * sizeof(float),
                    static_cast<size_t>(columns) * sizeof(float));
        continue;
      }
      auto& found = *reinterpret_cast<ClassRecord*>(record);
      if (layout_.task == config::Task::kYesNo) {
        const float target = reinterpret_cast<const float*>(batch.target)[row];
        found = {value(at) > 0, target > 0.5f, value(at)};
        continue;
      }
      found.target = reinterpret_cast<const int32_t*>(batch.target)[row];
      found.predicted = 0;  // the first of the largest, if there are several
      for (int64_t c = 1; c < columns; ++c) {
        if (value(at + c) > value(at + found.predicted)) found.predicted = static_cast<int32_t>(c);
      }
      found.score = columns == 2 ? value(at + 1) - value(at) : 0;
    }
  });
}

void TaskScores::add_class(const ClassRecord& record) {
  if (record.target < 0) return;
  counts_.add(record.predicted, record.target);
  if (report_) report_->classes->add(record.predicted, record.target);
  if (samples_ == nullptr) return;
  reinterpret_cast<metrics::ScoredClass*>(samples_)[kept_++] = {record.score, record.target == 1};
}

void TaskScores::add_values(const std::byte* record) {
  int32_t counted;
  std::memcpy(&counted, record, sizeof(counted));
  if (counted == 0 || samples_ == nullptr) return;
  const size_t bytes = value_bytes(layout_.columns);
  std::memcpy(samples_ + static_cast<size_t>(kept_++) * bytes, record + sizeof(counted), bytes);
}

void TaskScores::step_done() {
  if (layout_.task == config::Task::kOther) return;
  gather_->gather();
  for (int lane = 0; lane < layout_.lanes; ++lane) {
    for (int64_t row = 0; row < layout_.lane_rows; ++row) {
      const std::byte* const record =
          gather_->of(lane) + static_cast<size_t>(row) * layout_.row_bytes;
      if (layout_.task == config::Task::kValues) {
        add_values(record);
      } else {
        add_class(*reinterpret_cast<const ClassRecord*>(record));
      }
    }
  }
  forget_step();
}

metrics::TaskMetrics TaskScores::finish() {
  metrics::TaskMetrics metrics;
  if (layout_.task == config::Task::kOther) return metrics;
  if (layout_.task == config::Task::kValues) {
    if (samples_ == nullptr || kept_ == 0) return metrics;
    const auto* const values = reinterpret_cast<const float*>(samples_);
    const data::DataSummary& data = context_.data.summary;
    const metrics::ValueMetrics::Samples samples = {.predictions = values,
                                                    .targets = values + layout_.columns,
                                                    .rows = kept_,
                                                    .columns = layout_.columns,
                                                    .stride = 2 * layout_.columns,
                                                    .scale = data.target_std,
                                                    .shift = data.target_mean};
    std::byte* const scratch =
        samples_ + aligned(static_cast<size_t>(layout_.rows) * value_bytes(layout_.columns));
    for (int64_t c = 0; report_ && c < layout_.columns; ++c)
      report_->values.push_back(metrics::ValueMetrics::of_column(samples, c, scratch));
    return metrics::ValueMetrics::of(samples, scratch);
  }
  metrics[metrics::kF1] = counts_.f1();
  metrics[metrics::kMatthews] = counts_.matthews();
  if (samples_ != nullptr)
    metrics[metrics::kAuc] = metrics::area_under_roc(
        {reinterpret_cast<metrics::ScoredClass*>(samples_), static_cast<size_t>(kept_)});
  return metrics;
}

}  // namespace lockstep::train
