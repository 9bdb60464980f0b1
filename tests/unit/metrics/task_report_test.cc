// Catches: precision for recall, a mean over other classes than scikit-learn's, rows for columns of
// the confusion matrix, 0 / 0. Expected numbers are those of scikit-learn 1.9 with zero_division=0.
#include "runtime/metrics/task_report.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "runtime/metrics/task_metrics.h"

namespace lockstep::metrics {
namespace {

constexpr double kRounding = 1e-12;

// Class 2 is predicted and never wanted; class 4 is neither.
Confusion four_classes() {
  const std::vector<int32_t> targets = {0, 0, 1, 1, 1, 3, 3, 0, 1, 3};
  const std::vector<int32_t> predicted = {0, 1, 1, 1, 0, 3, 2, 0, 3, 3};
  Confusion confusion;
  for (size_t i = 0; i < targets.size(); ++i) confusion.add(predicted[i], targets[i]);
  return confusion;
}

void expect_scores(const ClassScores& found, const std::array<double, 3>& wanted, int64_t support) {
  EXPECT_NEAR(found.precision, wanted[0], kRounding);
  EXPECT_NEAR(found.recall, wanted[1], kRounding);
  EXPECT_NEAR(found.f1, wanted[2], kRounding);
  EXPECT_EQ(found.support, support);
}

TEST(TaskReport, ScoresOfClasses) {
  const Confusion confusion = four_classes();
  EXPECT_EQ(confusion.classes(), (std::vector<int32_t>{0, 1, 2, 3}));
  const std::vector<ClassScores> scores = confusion.scores();
  ASSERT_EQ(scores.size(), 4U);
  expect_scores(scores[0], {2.0 / 3, 2.0 / 3, 2.0 / 3}, 3);
  expect_scores(scores[1], {2.0 / 3, 0.5, 4.0 / 7}, 4);
  expect_scores(scores[2], {0, 0, 0}, 0);
  expect_scores(scores[3], {2.0 / 3, 2.0 / 3, 2.0 / 3}, 3);
  expect_scores(confusion.macro_mean(), {0.5, 0.45833333333333326, 0.47619047619047616}, 10);
  expect_scores(confusion.weighted_mean(), {0.6666666666666666, 0.6, 0.6285714285714286}, 10);
  EXPECT_NEAR(confusion.accuracy(), 0.6, kRounding);
  EXPECT_EQ(confusion.total(), 10);
}

TEST(TaskReport, ConfusedPairs) {
  Confusion confusion = four_classes();
  EXPECT_EQ(confusion.count(1, 3), 1);
  EXPECT_EQ(confusion.count(3, 1), 0);
  std::vector<std::array<int64_t, 3>> cells;
  for (const Confusion::Cell& cell : confusion.cells())
    cells.push_back({cell.target, cell.predicted, cell.count});
  EXPECT_EQ(cells,
            (std::vector<std::array<int64_t, 3>>{
                {0, 0, 2}, {0, 1, 1}, {1, 0, 1}, {1, 1, 2}, {1, 3, 1}, {3, 2, 1}, {3, 3, 2}}));
  confusion.add(3, 1);
  const std::vector<Confusion::Cell> most = confusion.most_confused(2);
  ASSERT_EQ(most.size(), 2U);
  EXPECT_EQ((std::pair{most[0].target, most[0].predicted}), (std::pair<int32_t, int32_t>{1, 3}));
  EXPECT_EQ((std::pair{most[1].target, most[1].predicted}), (std::pair<int32_t, int32_t>{0, 1}));
}

TEST(TaskReport, OfNothing) {
  const Confusion none;
  EXPECT_TRUE(none.scores().empty());
  expect_scores(none.macro_mean(), {0, 0, 0}, 0);
  EXPECT_EQ(none.accuracy(), 0);
}

TEST(TaskReport, OfAColumnOfValues) {
  // Two columns; the first is the one that is wrong everywhere.
  const std::vector<float> predictions = {9, 1.5f, 9, 2.0f, 9, -3.0f, 9, 4.25f};
  const std::vector<float> targets = {0, 1.0f, 0, 2.5f, 0, -2.0f, 0, 4.0f};
  std::vector<std::byte> scratch(ValueMetrics::scratch_bytes(4));
  const ValueScores found = ValueMetrics::of_column({.predictions = predictions.data(),
                                                     .targets = targets.data(),
                                                     .rows = 4,
                                                     .columns = 2,
                                                     .stride = 2},
                                                    1,
                                                    scratch.data());
  EXPECT_NEAR(found.mean_absolute_error, 0.5625, kRounding);
  EXPECT_NEAR(found.root_mean_squared_error, 0.625, kRounding);
  EXPECT_NEAR(found.r_squared, 0.9206349206349207, kRounding);
}

}  // namespace
}  // namespace lockstep::metrics
