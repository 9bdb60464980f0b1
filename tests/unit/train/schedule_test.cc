// Catches: a learning rate that is off by a step at warm-up, at a milestone or at the end.
#include "runtime/train/step/schedule.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Kind = ScheduleConfig::Kind;

ScheduleConfig schedule(Kind kind) {
  ScheduleConfig config;
  config.kind = kind;
  config.lr = 1.0f;
  config.min_lr = 0.25f;
  config.warmup_steps = 4;
  return config;
}

TEST(Schedule, WarmsUpLinearlyToTheFullRate) {
  for (Kind kind : {Kind::kConstant, Kind::kLinear, Kind::kCosine, Kind::kPolynomial}) {
    EXPECT_DOUBLE_EQ(learning_rate(schedule(kind), 0, 104), 0.25);
    EXPECT_DOUBLE_EQ(learning_rate(schedule(kind), 3, 104), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(schedule(kind), 4, 104), 1.0);
  }
}

TEST(Schedule, EndsWhereItsFormulaSays) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule(Kind::kConstant), 104, 104), 1.0);
  for (Kind kind : {Kind::kLinear, Kind::kCosine, Kind::kPolynomial})
    EXPECT_NEAR(learning_rate(schedule(kind), 104, 104), 0.25, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(Kind::kLinear), 54, 104), 0.625);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(Kind::kCosine), 54, 104), 0.625);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(Kind::kPolynomial), 54, 104), 0.25 + 0.75 * 0.25);
}

TEST(Schedule, StepsDownAtEachMilestone) {
  ScheduleConfig config = schedule(Kind::kStep);
  config.warmup_steps = 0;
  config.milestones = {10, 20};
  config.gamma = 0.5f;
  EXPECT_DOUBLE_EQ(learning_rate(config, 9, 30), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 10, 30), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 20, 30), 0.25);
}

TEST(Schedule, StaysStableThenDecays) {
  ScheduleConfig config = schedule(Kind::kWarmupStableDecay);
  config.decay_steps = 10;
  EXPECT_DOUBLE_EQ(learning_rate(config, 89, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 95, 100), 0.25 + 0.75 * 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 100, 100), 0.25);
}

}  // namespace
}  // namespace lockstep
