#pragma once
// Metrics of how scores rank the samples, for each of several classes or labels.

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/metrics/task_metrics.h"

namespace lockstep::metrics {

// A sample, seen from one class: the larger its score, the likelier it is of the class.
struct ScoredClass {
  float score;
  int32_t is_one;  // 1 if it is of the class, otherwise 0
};

// The area under the ROC curve: the share of pairs (sample of the class, other sample) in which the
// first has the larger score. Equal scores count one half. Exact. Sorts `samples`. Returns 0.5 if
// one of the two has no samples, and NaN if a score is NaN.
double area_under_roc(std::span<ScoredClass> samples);

// The sum over all different scores s of (R(s) - R(before s)) P(s), from the largest score: R(s) is
// the share of the class's samples that score at least s, P(s) the share of the samples that score
// at least s which are of the class. As scikit-learn's average_precision_score. Sorts `samples`.
// Returns 0 if the class has no samples, and NaN if a score is NaN.
double average_precision(std::span<ScoredClass> samples);

// The scores of all samples for each of several columns: a class against the others, or a label.
// Its metrics are means over the columns that have samples of both kinds: scikit-learn's
// roc_auc_score (for classes with multi_class="ovr") and average_precision_score with
// average="macro", if all columns do. They do not depend on the order of the samples.
class RankedScores {
 public:
  RankedScores() = default;
  // `memory`: bytes(rows, columns), borrowed. 0 columns: nothing is kept.
  RankedScores(std::byte* memory, int64_t rows, int64_t columns)
      : memory_(reinterpret_cast<ScoredClass*>(memory)), rows_(rows), columns_(columns) {}

  static size_t bytes(int64_t rows, int64_t columns) {
    return static_cast<size_t>(rows * columns) * sizeof(ScoredClass);
  }
  // Whether scores are kept by default: those of one column, or few; or else if they are `wanted`.
  static bool worth_keeping(int64_t rows, int64_t columns, bool wanted) {
    constexpr size_t kFewBytes = size_t{32} << 20;
    return columns == 1 || wanted || bytes(rows, columns) <= kFewBytes;
  }

  int64_t columns() const { return columns_; }
  // Sets a score of the next sample; next() when all are set.
  void set(int64_t column, ScoredClass scored) { memory_[column * rows_ + kept_] = scored; }
  void next() { ++kept_; }

  // Sets kAuc and kAveragePrecision, if scores were kept. Sorts them.
  void finish(TaskMetrics* metrics);

 private:
  ScoredClass* memory_ = nullptr;  // (columns, rows)
  int64_t rows_ = 0, columns_ = 0;
  int64_t kept_ = 0;  // samples
};

}  // namespace lockstep::metrics
