// Catches: metrics of kept predictions that are not those of an evaluation: another loss, rows
// without a target that count, ties that are broken otherwise. Expected numbers are those of
// scikit-learn 1.9.
#include "runtime/train/evaluation/prediction_scores.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace lockstep::train {
namespace {

constexpr double kRounding = 1e-12;
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

config::ModelTraits model_of(Loss loss, int64_t outputs) {
  config::ModelTraits model;
  model.section = "mlp";
  model.loss = loss;
  model.outputs = outputs;
  return model;
}

// The second row has two equal outputs, of which the first is the prediction; the last row has no
// target.
Predictions classes() {
  Predictions found = {.samples = 5, .columns = 3};
  found.outputs = {1, 2, 0.5f, 0.25f, 0.25f, -1, 3, -1, 2, 0, 0, 1, 9, 0, 0};
  found.labels = {1, 1, 0, 2, -1};
  return found;
}

TEST(PredictionScores, OfClasses) {
  const auto scores = score_predictions(model_of(Loss::kSoftmaxCrossEntropy, 3), {}, {}, classes());
  ASSERT_TRUE(scores);
  EXPECT_NEAR(scores->evaluation.loss, 0.5423501253316042, kRounding);
  EXPECT_EQ(scores->evaluation.samples, 4);
  EXPECT_EQ(scores->evaluation.accuracy, 0.75);
  EXPECT_FALSE(scores->evaluation.top5);
  EXPECT_NEAR(*scores->evaluation.task[metrics::kF1], 0.7777777777777777, kRounding);
  EXPECT_NEAR(*scores->evaluation.task[metrics::kMatthews], 0.7, kRounding);
  EXPECT_FALSE(scores->evaluation.task[metrics::kAuc]);
  ASSERT_TRUE(scores->report.classes);
  EXPECT_EQ(scores->report.classes->count(1, 0), 1);
}

TEST(PredictionScores, ClassWeightsWeighOnlyTheLoss) {
  const std::vector<float> weights = {0.5f, 2, 1};
  const auto scores =
      score_predictions(model_of(Loss::kSoftmaxCrossEntropy, 3), weights, {}, classes());
  EXPECT_NEAR(scores->evaluation.loss, 0.5995476957853776, kRounding);
  EXPECT_EQ(scores->evaluation.accuracy, 0.75);
}

TEST(PredictionScores, OfOneAnswer) {
  Predictions found = {.samples = 5, .columns = 1};
  found.outputs = {2, -1, 3, 0.5f, -0.25f};
  found.values = {1, 0, kNone, 0, 1};
  const auto scores = score_predictions(model_of(Loss::kBinaryCrossEntropy, 1), {}, {}, found);
  EXPECT_NEAR(scores->evaluation.loss, 0.5600515256550365, kRounding);
  EXPECT_EQ(scores->evaluation.samples, 4);
  EXPECT_EQ(scores->evaluation.accuracy, 0.5);
  EXPECT_EQ(scores->evaluation.task[metrics::kAuc], 0.75);
  EXPECT_EQ(scores->evaluation.task[metrics::kF1], 0.5);
}

TEST(PredictionScores, SeveralAnswersHaveAnAccuracyAlone) {
  Predictions found = {.samples = 2, .columns = 2};
  found.outputs = {2, -1, 0.5f, -0.25f};
  found.values = {1, 0, 0, 1};
  const auto scores = score_predictions(model_of(Loss::kBinaryCrossEntropy, 2), {}, {}, found);
  EXPECT_NEAR(scores->evaluation.loss, 0.5600515256550365, kRounding);
  EXPECT_EQ(scores->evaluation.accuracy, 0.5);
  EXPECT_FALSE(scores->evaluation.task[metrics::kF1]);
  EXPECT_FALSE(scores->report.classes);
}

TEST(PredictionScores, OfValues) {
  Predictions found = {.samples = 5, .columns = 1};
  found.outputs = {1.5f, 2, 7, -3, 4.25f};
  found.values = {1, 2.5f, kNone, -2, 4};
  const std::vector<double> std = {2};
  const auto scores = score_predictions(model_of(Loss::kMeanSquaredError, 1), {}, std, found);
  EXPECT_NEAR(scores->evaluation.loss, 0.625 * 0.625 / 4, kRounding);
  EXPECT_EQ(scores->evaluation.samples, 4);
  EXPECT_NEAR(*scores->evaluation.task[metrics::kMeanAbsoluteError], 0.5625, kRounding);
  EXPECT_NEAR(*scores->evaluation.task[metrics::kRSquared], 0.9206349206349207, kRounding);
  ASSERT_EQ(scores->report.values.size(), 1U);
  EXPECT_NEAR(scores->report.values[0].root_mean_squared_error, 0.625, kRounding);
}

TEST(PredictionScores, NoneWithoutTargets) {
  Predictions found = classes();
  found.labels.assign(5, -1);
  EXPECT_FALSE(score_predictions(model_of(Loss::kSoftmaxCrossEntropy, 3), {}, {}, found));
  config::ModelTraits language = model_of(Loss::kSoftmaxCrossEntropy, 3);
  language.input = config::ModelInput::kTokens;
  EXPECT_FALSE(score_predictions(language, {}, {}, classes()));
}

}  // namespace
}  // namespace lockstep::train
