// Catches: metrics of kept predictions that are not those of an evaluation: another loss, rows
// without a target that count, ties that are broken otherwise. Expected numbers are those of
// scikit-learn 1.9 and torch 2.15.
#include "runtime/train/evaluation/prediction_scores.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace lockstep::train {
namespace {

constexpr double kRounding = 1e-12;
// By torch.nn.functional.
constexpr double kLabelLoss = 1.024498950949583, kShareLoss = 1.0059343380206305,
                 kHuberLoss = 0.4453125;
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
  EXPECT_NEAR(*scores->evaluation.task[metrics::kAuc], 1, kRounding);
  ASSERT_TRUE(scores->report.classes);
  EXPECT_EQ(scores->report.classes->count(1, 0), 1);
}

TEST(PredictionScores, ClassWeightsWeighOnlyTheLoss) {
  TrainConfig train;
  train.class_weights = {0.5f, 2, 1};
  const auto scores =
      score_predictions(model_of(Loss::kSoftmaxCrossEntropy, 3), train, {}, classes());
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

TEST(PredictionScores, OfLabels) {
  Predictions found = {.samples = 2, .columns = 2};
  found.outputs = {2, -1, 0.5f, -0.25f};
  found.values = {1, 0, 0, 1};
  const auto scores = score_predictions(model_of(Loss::kBinaryCrossEntropy, 2), {}, {}, found);
  EXPECT_NEAR(scores->evaluation.loss, 0.5600515256550365, kRounding);
  EXPECT_EQ(scores->evaluation.accuracy, 0.5);
  EXPECT_EQ(scores->evaluation.samples, 2);
  EXPECT_NEAR(*scores->evaluation.task[metrics::kF1], 1.0 / 3, kRounding);
  EXPECT_FALSE(scores->evaluation.task[metrics::kMatthews]);
  EXPECT_FALSE(scores->report.classes);
  ASSERT_EQ(scores->report.labels.size(), 2u);
  EXPECT_EQ(scores->report.labels[0].precision, 0.5);
}

TEST(PredictionScores, OfLabelsWithWeightsOfYes) {
  Predictions found = {.samples = 7, .columns = 3};
  found.outputs = {2,     -1, 0.5f, -0.25f, 0.5f, -1,     0.5f, -2, 0.25f, 1, 1,
                   -0.5f, -1, 0.5f, 0.75f,  0.5f, -0.25f, 2,    9,  9,     9};
  found.values = {1, 0, 0, 0, 1, 1, 1, 0, 1, 0, 1, 0, 0, 0, 1, 1, 1, 1, kNone, kNone, kNone};
  TrainConfig train;
  train.pos_weight = {0.5f, 2, 4};
  const auto scores = score_predictions(model_of(Loss::kBinaryCrossEntropy, 3), train, {}, found);
  EXPECT_NEAR(scores->evaluation.loss, kLabelLoss, kRounding);
  EXPECT_EQ(scores->evaluation.samples, 6);
  EXPECT_NEAR(scores->evaluation.accuracy, 13.0 / 18, kRounding);
  EXPECT_NEAR(*scores->evaluation.task[metrics::kF1], 0.7579365079365079, kRounding);
  EXPECT_NEAR(*scores->evaluation.task[metrics::kAuc], 0.7453703703703703, kRounding);
  EXPECT_NEAR(*scores->evaluation.task[metrics::kAveragePrecision], 0.8310185185185185, kRounding);
}

// The targets' largest shares are the labels; metrics are those of classes.
TEST(PredictionScores, OfDistributions) {
  Predictions found = {.samples = 8, .columns = 3};
  found.outputs = {1,  2,    0.5f,  0.25f, 0.25f, -1, 3,    -1,   2,    0,    0,     1,
                   -1, 0.5f, 0.75f, 2,     2.5f,  2,  0.1f, 0.2f, 0.3f, 1.5f, -0.5f, 0};
  found.values = {0.25f, 0.5f,  0.25f, 0.125f, 0.75f, 0.125f, 0.5f, 0.25f,
                  0.25f, 0.25f, 0.25f, 0.5f,   0,     1,      0,    0.5f,
                  0.5f,  0,     0.25f, 0.25f,  0.5f,  1,      0,    0};
  const auto scores = score_predictions(model_of(Loss::kSoftCrossEntropy, 3), {}, {}, found);
  EXPECT_NEAR(scores->evaluation.loss, kShareLoss, kRounding);
  EXPECT_EQ(scores->evaluation.accuracy, 0.625);
  EXPECT_NEAR(*scores->evaluation.task[metrics::kF1], 0.6222222222222222, kRounding);
  EXPECT_NEAR(*scores->evaluation.task[metrics::kAuc], 0.8833333333333334, kRounding);
  EXPECT_NEAR(*scores->evaluation.task[metrics::kAveragePrecision], 0.8351851851851851, kRounding);
}

TEST(PredictionScores, LossesOfValues) {
  Predictions found = {.samples = 2, .columns = 2};
  found.outputs = {1, -2, 0.5f, 0.25f};
  found.values = {0.75f, 1, 0.5f, 1.25f};
  config::ModelTraits model = model_of(Loss::kMeanAbsoluteError, 2);
  EXPECT_NEAR(score_predictions(model, {}, {}, found)->evaluation.loss, 1.0625, kRounding);
  model.loss = Loss::kHuber;
  model.huber_delta = 0.5f;
  EXPECT_NEAR(score_predictions(model, {}, {}, found)->evaluation.loss, kHuberLoss, kRounding);
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
