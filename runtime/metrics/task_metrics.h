#pragma once
// Metrics of predictions for each kind of task. The numbers do not depend on who computes them:
// counts are integers, and scores are summed in the order of the samples.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "runtime/metrics/task_report.h"

namespace lockstep::metrics {

// In the order of EvalConfig::Metric, starting at F1. runtime/README.md explains how to add one.
enum TaskMetric {
  kF1,
  kMatthews,
  kAuc,
  kMeanAbsoluteError,
  kRSquared,
  kPearson,
  kSpearman,
  kAveragePrecision,
  kMeanIou,
  kWordErrorRate,
  kCharacterErrorRate,
  kRecallAt1,
  kRecallAt5,
  kRecallAt10,
  kTaskMetricCount
};

// "eval_f1" as in metrics.jsonl, and "f1" as in TensorBoard after "eval/". Both are interfaces.
const char* name_of(TaskMetric metric);
const char* short_name_of(TaskMetric metric);

// The metrics that an evaluation has.
using TaskMetrics = std::array<std::optional<double>, kTaskMetricCount>;

// ", F1 0.8123, Matthews 0.7012", for a log line; empty if there is none.
std::string to_text(const TaskMetrics& metrics);

// Counts predictions of classes.
class ClassCounts {
 public:
  struct Counts {
    int64_t predicted = 0, wanted = 0, right = 0;
    double f1() const {
      const int64_t both = predicted + wanted;
      return both == 0 ? 0 : 2 * static_cast<double>(right) / static_cast<double>(both);
    }
    ClassScores scores() const;
  };
  // `counts`: one for each class, borrowed.
  explicit ClassCounts(std::span<Counts> counts) : counts_(counts) { clear(); }

  void clear();
  void add(int64_t predicted, int64_t target, int64_t times = 1) {
    at(predicted).predicted += times;
    at(target).wanted += times;
    if (predicted == target) at(target).right += times;
    total_ += times;
  }

  // Adds counts of the same classes.
  void add(std::span<const Counts> more);

  int64_t total() const { return total_; }

  // With two classes the F1 of class 1; otherwise the mean over all classes that occur as target or
  // prediction. These are scikit-learn's f1_score without and with average="macro". F1 of a class =
  // 2 right / (predicted + wanted).
  double f1() const;
  // The mean over all classes that occur as target or prediction of
  // right / (predicted + wanted - right), the intersection over union; 0 if none occurs.
  double mean_iou() const;
  // Matthews correlation coefficient (Gorodkin 2004):
  // (right * total - sum of predicted * wanted) /
  // sqrt((total^2 - sum of predicted^2) (total^2 - sum of wanted^2));
  // 0 if all predictions or all targets are the same class.
  double matthews() const;

 private:
  Counts& at(int64_t number) { return counts_[static_cast<size_t>(number)]; }

  std::span<Counts> counts_;
  int64_t total_ = 0;
};

// Metrics of predicted values. Samples are rows of several columns; each metric is the mean over
// the columns.
//   mean absolute error  mean |x - t|
//   root mean squared error  sqrt(mean (x - t)^2); not among the TaskMetrics
//   R squared            1 - sum (t - x)^2 / sum (t - mean t)^2; if all t are equal, 1 if all x are
//                        right, otherwise 0
//   Pearson, Spearman    correlation of values, or of ranks (equal values share their mean rank); 0
//                        if all x or all t are equal
class ValueMetrics {
 public:
  // The size of `scratch` for that many rows.
  static size_t scratch_bytes(int64_t rows);

  // predictions, targets: (rows, columns); consecutive rows are `stride` elements apart. `scale`
  // and `shift` (columns, or empty): metrics are computed from value * scale + shift, for both.
  struct Samples {
    const float* predictions;
    const float* targets;
    int64_t rows, columns, stride;
    std::span<const double> scale = {}, shift = {};
  };
  static TaskMetrics of(const Samples& samples, std::byte* scratch);
  // Those of one column.
  static ValueScores of_column(const Samples& samples, int64_t column, std::byte* scratch);
};

}  // namespace lockstep::metrics
