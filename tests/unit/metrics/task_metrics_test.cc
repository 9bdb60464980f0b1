// Catches: a metric that is not scikit-learn's or scipy's: classes that nobody has counted in, ties
// that are broken, ranks or values out of step, columns or units mixed up, and 0 / 0. Expected
// numbers are those of scikit-learn 1.9 and scipy 1.17, in the order of the samples.
#include "runtime/metrics/task_metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/metrics/ranked_scores.h"

namespace lockstep::metrics {
namespace {

constexpr double kRounding = 1e-12;

struct Classes {
  std::vector<ClassCounts::Counts> memory;
  ClassCounts counts;
  explicit Classes(size_t classes) : memory(classes), counts(memory) {}
  Classes(size_t classes, const std::vector<int>& targets, const std::vector<int>& predicted)
      : Classes(classes) {
    for (size_t i = 0; i < targets.size(); ++i) counts.add(predicted[i], targets[i]);
  }
};

// Class 2 is predicted and never wanted; class 4 is neither, and does not count.
TEST(TaskMetrics, OfSeveralClasses) {
  const Classes found(5, {0, 0, 1, 1, 1, 3, 3, 0, 1, 3}, {0, 1, 1, 1, 0, 3, 2, 0, 3, 3});
  EXPECT_NEAR(found.counts.f1(), 0.47619047619047616, kRounding);
  EXPECT_NEAR(found.counts.matthews(), 0.4351941398892446, kRounding);
  EXPECT_EQ(found.counts.total(), 10);
}

TEST(TaskMetrics, OfTwoClasses) {
  const Classes found(2, {0, 1, 1, 0, 1, 0, 1, 1}, {0, 1, 0, 0, 1, 1, 1, 0});
  EXPECT_NEAR(found.counts.f1(), 0.6666666666666666, kRounding);
  EXPECT_NEAR(found.counts.matthews(), 0.2581988897471611, kRounding);
}

// As jaccard_score(average="macro") of scikit-learn, and torchmetrics' MulticlassJaccardIndex.
// Classes 3, 4 and 6 do not occur.
TEST(TaskMetrics, IntersectionOverUnion) {
  const std::vector<int> targets = {0, 1, 2, 0, 1, 2, 0, 5}, predicted = {0, 2, 1, 0, 0, 1, 5, 5};
  const Classes found(7, targets, predicted);
  EXPECT_NEAR(found.counts.mean_iou(), 0.25, kRounding);
  EXPECT_EQ(Classes(2).counts.mean_iou(), 0);
  Classes twice(7, targets, predicted);
  twice.counts.add(found.memory);
  EXPECT_EQ(twice.counts.total(), 16);
  EXPECT_EQ(twice.memory[0].right, 4);
  EXPECT_NEAR(twice.counts.mean_iou(), 0.25, kRounding);
}

TEST(TaskMetrics, WhereAllIsTheSame) {
  const Classes one(2, {1, 1, 1}, {1, 1, 1}), never(2, {0, 0, 1}, {0, 0, 0});
  EXPECT_EQ(one.counts.f1(), 1);
  EXPECT_EQ(one.counts.matthews(), 0);
  EXPECT_EQ(never.counts.f1(), 0);
  EXPECT_EQ(never.counts.matthews(), 0);
  EXPECT_EQ(Classes(2).counts.f1(), 0);
  EXPECT_EQ(Classes(2).counts.matthews(), 0);
}

TEST(TaskMetrics, CountsBeginAnew) {
  Classes found(2, {0, 1}, {1, 1});
  found.counts.clear();
  found.counts.add(1, 1);
  EXPECT_EQ(found.counts.f1(), 1);
  EXPECT_EQ(found.counts.total(), 1);
}

TEST(TaskMetrics, AreaUnderRocCountsTiesHalf) {
  const std::vector<float> scores = {0.5, 0.25, 0.5, -1, 2, 0.5, 0.25, 3, 0, -1};
  const std::vector<int> classes = {1, 0, 0, 0, 1, 1, 1, 1, 0, 1};
  std::vector<ScoredClass> samples;
  for (size_t i = 0; i < scores.size(); ++i) samples.push_back({scores[i], classes[i]});
  EXPECT_DOUBLE_EQ(area_under_roc(samples), 0.75);
  std::reverse(samples.begin(), samples.end());
  EXPECT_DOUBLE_EQ(area_under_roc(samples), 0.75);
  for (ScoredClass& sample : samples) sample.score = 1;
  EXPECT_EQ(area_under_roc(samples), 0.5);
  for (ScoredClass& sample : samples) sample.score = static_cast<float>(sample.is_one);
  EXPECT_EQ(area_under_roc(samples), 1);
  for (ScoredClass& sample : samples) sample.is_one = 1;
  EXPECT_EQ(area_under_roc(samples), 0.5);
  samples[3].score = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(area_under_roc(samples)));
}

TEST(TaskMetrics, AveragePrecisionTakesTiesTogether) {
  std::vector<ScoredClass> samples = {{0.1f, 0}, {0.4f, 0}, {0.35f, 1}, {0.8f, 1}, {0.4f, 1}};
  EXPECT_DOUBLE_EQ(average_precision(samples), 0.8055555555555556);
  std::reverse(samples.begin(), samples.end());
  EXPECT_DOUBLE_EQ(average_precision(samples), 0.8055555555555556);
  for (ScoredClass& sample : samples) sample.is_one = 1;
  EXPECT_EQ(average_precision(samples), 1);
  for (ScoredClass& sample : samples) sample.is_one = 0;
  EXPECT_EQ(average_precision(samples), 0);
  samples[3].score = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(average_precision(samples)));
}

// A column with samples of one kind alone does not count, unless it is the only one.
TEST(TaskMetrics, RankedScoresAreMeansOverColumnsWithBothKinds) {
  const std::vector<std::vector<ScoredClass>> rows = {{{0.5f, 1}, {1, 0}, {3, 1}},
                                                      {{-1, 0}, {2, 0}, {3, 0}},
                                                      {{0.75f, 0}, {3, 0}, {-2, 1}},
                                                      {{2, 1}, {4, 0}, {-3, 0}}};
  const auto metrics_of = [&](int64_t columns, int64_t kept) {
    std::vector<std::byte> memory(RankedScores::bytes(5, columns));
    RankedScores scores(memory.data(), 5, columns);
    for (int64_t row = 0; row < kept; ++row) {
      for (int64_t c = 0; c < columns; ++c)
        scores.set(c, rows[static_cast<size_t>(row)][static_cast<size_t>(c)]);
      scores.next();
    }
    TaskMetrics metrics;
    scores.finish(&metrics);
    return metrics;
  };
  const TaskMetrics three = metrics_of(3, 4), one = metrics_of(1, 4), none = metrics_of(2, 0);
  EXPECT_DOUBLE_EQ(*three[kAuc], (0.75 + 0.625) / 2);
  EXPECT_DOUBLE_EQ(*one[kAuc], 0.75);
  EXPECT_DOUBLE_EQ(*one[kAveragePrecision], (1 + 2.0 / 3) / 2);
  EXPECT_EQ(*none[kAuc], 0.5);
  EXPECT_EQ(*none[kAveragePrecision], 0);
}

// Rows of predictions and targets, in turn, as an evaluation keeps them.
TaskMetrics of_values(const std::vector<std::vector<float>>& predictions,
                      const std::vector<std::vector<float>>& targets,
                      std::span<const double> scale = {},
                      std::span<const double> shift = {}) {
  std::vector<float> values;
  for (size_t i = 0; i < predictions.size(); ++i) {
    values.insert(values.end(), predictions[i].begin(), predictions[i].end());
    values.insert(values.end(), targets[i].begin(), targets[i].end());
  }
  const auto rows = static_cast<int64_t>(predictions.size()),
             columns = static_cast<int64_t>(predictions[0].size());
  std::vector<std::byte> scratch(ValueMetrics::scratch_bytes(rows));
  return ValueMetrics::of({.predictions = values.data(),
                           .targets = values.data() + columns,
                           .rows = rows,
                           .columns = columns,
                           .stride = 2 * columns,
                           .scale = scale,
                           .shift = shift},
                          scratch.data());
}

const std::vector<std::vector<float>> kPredictions = {
    {1.5, 0.25}, {2, 0.5}, {2, -1}, {-3.5, 4}, {0, 0.5}, {7.25, 2}};
const std::vector<std::vector<float>> kTargets = {
    {1, 0.5}, {3, 0.5}, {2.5, 0}, {-1, 3}, {0.5, 1}, {3, -2}};

TEST(TaskMetrics, OfValuesAreMeansOverColumns) {
  const TaskMetrics found = of_values(kPredictions, kTargets);
  EXPECT_NEAR(*found[kMeanAbsoluteError], 4.0 / 3, kRounding);
  EXPECT_NEAR(*found[kRSquared], -0.7067307692307694, kRounding);
  EXPECT_NEAR(*found[kPearson], 0.6301289515455006, kRounding);
  EXPECT_NEAR(*found[kSpearman], 0.6617647058823529, kRounding);
  EXPECT_FALSE(found[kF1].has_value() || found[kMatthews].has_value() || found[kAuc].has_value());
}

TEST(TaskMetrics, OfStandardisedValuesAreInTheUnitsOfTheFile) {
  const double scale[] = {2, 3}, shift[] = {1, -1};
  const TaskMetrics found = of_values(kPredictions, kTargets, scale, shift);
  EXPECT_NEAR(*found[kMeanAbsoluteError], 3.229166666666667, kRounding);
  EXPECT_NEAR(*found[kRSquared], -0.7067307692307694, kRounding);
  EXPECT_NEAR(*found[kPearson], 0.6301289515455006, kRounding);
}

TEST(TaskMetrics, OfValuesThatAreAllEqual) {
  // 0.1 is no multiple of a power of two: sums of it do not divide back to it.
  const std::vector<std::vector<float>> equal(7, {0.1f}),
      others = {{1}, {2}, {3}, {4}, {5}, {6}, {7}};
  const TaskMetrics right = of_values(equal, equal), wrong = of_values(others, equal),
                    constant = of_values(equal, others);
  EXPECT_EQ(*right[kRSquared], 1);
  EXPECT_EQ(*wrong[kRSquared], 0);
  EXPECT_LT(*constant[kRSquared], 0);
  for (const TaskMetrics& found : {right, wrong, constant}) {
    EXPECT_EQ(*found[kPearson], 0);
    EXPECT_EQ(*found[kSpearman], 0);
  }
  EXPECT_NEAR(*of_values(others, others)[kSpearman], 1, kRounding);
}

TEST(TaskMetrics, NotANumberShows) {
  std::vector<std::vector<float>> predictions = kPredictions;
  predictions[2][1] = std::numeric_limits<float>::quiet_NaN();
  const TaskMetrics found = of_values(predictions, kTargets);
  for (const TaskMetric metric : {kMeanAbsoluteError, kPearson, kSpearman})
    EXPECT_TRUE(std::isnan(*found[metric])) << name_of(metric);
}

TEST(TaskMetrics, NamesAndWords) {
  EXPECT_STREQ(name_of(kMeanAbsoluteError), "eval_mean_absolute_error");
  EXPECT_STREQ(short_name_of(kRSquared), "r_squared");
  TaskMetrics metrics;
  EXPECT_EQ(to_text(metrics), "");
  metrics[kF1] = 0.5;
  metrics[kAuc] = 0.87654;
  EXPECT_EQ(to_text(metrics), ", F1 0.5000, AUC 0.8765");
}

}  // namespace
}  // namespace lockstep::metrics
