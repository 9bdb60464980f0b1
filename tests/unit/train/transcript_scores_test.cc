// Catches: a loss of kept transcripts that is not that of the network, samples without a text that
// count, and rates of other texts.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "runtime/train/evaluation/prediction_scores.h"

namespace lockstep::train {
namespace {

// All classes are equally likely, so that the best path is blank; three of nine paths of two frames
// spell "a". The last sample has no target.
TEST(TranscriptScores, AreThoseOfKeptPredictions) {
  config::ModelTraits model;
  model.loss = Loss::kCtc;
  model.outputs = 3;
  model.transcript = config::TranscriptTraits{.frames = 2, .features = 1, .output_frames = 2};
  Predictions found = {.samples = 3, .tokens = 2, .columns = 3};
  found.outputs.assign(18, 0.5f);
  found.labels = {2, 1, 1, 1, 0, 0, 2, -1, 0};
  const std::vector<std::string> names = {"", "a", "b"};
  const auto scores = score_predictions(model, {}, {}, found, names);
  ASSERT_TRUE(scores);
  EXPECT_NEAR(scores->evaluation.loss, std::log(3.0), 1e-12);
  EXPECT_EQ(scores->evaluation.samples, 2);
  EXPECT_EQ(scores->evaluation.task[metrics::kWordErrorRate], 1.0);
  EXPECT_EQ(scores->evaluation.task[metrics::kCharacterErrorRate], 1.0);
  EXPECT_FALSE(scores->evaluation.top5);
}

}  // namespace
}  // namespace lockstep::train
