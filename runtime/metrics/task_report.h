#pragma once
// Metrics in detail: of each class, of each column of values, and which classes are confused.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::metrics {

// Scores of a class, or their mean over classes. A share of no samples is 0. These are
// scikit-learn's precision_recall_fscore_support with zero_division=0.
struct ClassScores {
  double precision = 0;  // share of the predictions of the class that are right
  double recall = 0;     // share of the class's samples that are found
  double f1 = 0;         // 2 right / (predictions + samples)
  int64_t support = 0;   // samples of the class
};

// Counts samples by their class and the predicted one. Takes memory for pairs that occur.
class Confusion {
 public:
  struct Cell {
    int32_t target, predicted;
    int64_t count;
  };

  void add(int32_t predicted, int32_t target) { ++counts_[{target, predicted}]; }

  int64_t total() const;
  // The samples of class `target` that are predicted as `predicted`.
  int64_t count(int32_t target, int32_t predicted) const;
  // The pairs that occur, sorted by target, then by prediction.
  std::vector<Cell> cells() const;
  // The `most` pairs of different classes that occur most often, the most frequent first; among
  // equal ones in the order of cells().
  std::vector<Cell> most_confused(size_t most) const;
  // Classes that occur as target or prediction, sorted.
  std::vector<int32_t> classes() const;
  // Parallel to classes().
  std::vector<ClassScores> scores() const;
  double accuracy() const;
  // The mean over classes(), and the mean weighted by support.
  ClassScores macro_mean() const;
  ClassScores weighted_mean() const;

 private:
  std::map<std::pair<int32_t, int32_t>, int64_t> counts_;  // by (target, predicted)
};

// Scores of one column of values; ValueMetrics has the formulas.
struct ValueScores {
  double mean_absolute_error = 0, root_mean_squared_error = 0, r_squared = 0;
  double pearson = 0, spearman = 0;
};

// What a task has of these.
struct TaskReport {
  std::optional<Confusion> classes;
  std::vector<ClassScores> labels;  // of several yes-or-no answers
  std::vector<ValueScores> values;  // (columns)
};

}  // namespace lockstep::metrics
