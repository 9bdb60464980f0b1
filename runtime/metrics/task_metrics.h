#pragma once
// How good predictions are, in the terms of their task. The same numbers whoever adds them up:
// counts are integers, and sums of scores are taken in the order of the samples.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

// In the order of EvalConfig::Metric, from F1 on.
enum TaskMetric {
  kF1,
  kMatthews,
  kAuc,
  kMeanAbsoluteError,
  kRSquared,
  kPearson,
  kSpearman,
  kTaskMetricCount
};

// "eval_f1", of metrics.jsonl, and "f1", after "eval/" in TensorBoard. Interfaces.
const char* name_of(TaskMetric metric);
const char* short_name_of(TaskMetric metric);

// Those that an evaluation has.
using TaskMetrics = std::array<std::optional<double>, kTaskMetricCount>;

// ", F1 0.8123, Matthews 0.7012": for a line of text; empty where there is none.
std::string to_text(const TaskMetrics& metrics);

// What has been predicted of classes.
class ClassCounts {
 public:
  struct Counts {
    int64_t predicted = 0, wanted = 0, right = 0;
    double f1() const {
      const int64_t both = predicted + wanted;
      return both == 0 ? 0 : 2 * static_cast<double>(right) / static_cast<double>(both);
    }
  };
  // `counts`: of each class, borrowed.
  explicit ClassCounts(std::span<Counts> counts) : counts_(counts) { clear(); }

  void clear();
  void add(int64_t predicted, int64_t target) {
    ++at(predicted).predicted;
    ++at(target).wanted;
    if (predicted == target) ++at(target).right;
    ++total_;
  }

  int64_t total() const { return total_; }

  // Of two classes that of class 1, else the mean over all classes that are wanted or predicted
  // somewhere: scikit-learn's f1_score, and with average="macro". F1 of a class =
  // 2 right / (predicted + wanted).
  double f1() const;
  // (right * total - sum of predicted * wanted) / sqrt((total^2 - sum of predicted^2) (total^2 - sum
  // of wanted^2)) (Gorodkin 2004); 0 where one of both is always the same.
  double matthews() const;

 private:
  Counts& at(int64_t number) { return counts_[static_cast<size_t>(number)]; }

  std::span<Counts> counts_;
  int64_t total_ = 0;
};

// A sample of two classes: the larger its score, the likelier is class 1.
struct ScoredClass {
  float score;
  int32_t is_one;
};

// The area under the ROC curve: the share of pairs of a sample of class 1 and one of class 0 of
// which the first has the larger score, equal ones counted half. Exact. Sorts `samples`. 0.5 where
// one class has none, NaN where a score is.
double area_under_roc(std::span<ScoredClass> samples);

// Metrics of values, samples in rows of so many columns; of each metric the mean over the columns.
//   mean absolute error  mean |x - t|
//   R squared            1 - sum (t - x)^2 / sum (t - mean t)^2; where all t are equal 1 if all x are
//                        right, else 0
//   Pearson, Spearman    correlation of values, of ranks (equal ones have their mean); 0 where all x
//                        or all t are equal
class ValueMetrics {
 public:
  // Bytes of `scratch` for so many rows.
  static size_t scratch_bytes(int64_t rows);

  // predictions, targets: (rows, columns), a row `stride` after the one before. `scale`, `shift`
  // (columns) or empty: metrics are of value * scale + shift of both.
  struct Samples {
    const float* predictions;
    const float* targets;
    int64_t rows, columns, stride;
    std::span<const double> scale = {}, shift = {};
  };
  static TaskMetrics of(const Samples& samples, std::byte* scratch);
};

}  // namespace lockstep
