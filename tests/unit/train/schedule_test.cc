// Catches: a learning rate that is off by a step at warm-up, at a milestone or at the end.
#include "runtime/train/step/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::train {
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

// torch.optim.lr_scheduler.ExponentialLR with gamma 0.875, after the warm-up, down to the minimum.
TEST(Schedule, FallsExponentially) {
  ScheduleConfig config = schedule(Kind::kExponential);
  config.gamma = 0.875f;
  config.min_lr = 0;
  const double rates[] = {1.0, 0.875, 0.765625, 0.669921875, 0.586181640625, 0.512908935546875};
  for (int64_t step = 0; step < 4; ++step)
    EXPECT_DOUBLE_EQ(learning_rate(config, step, 30), 0.25 * static_cast<double>(step + 1));
  for (int64_t i = 0; i < 6; ++i) EXPECT_DOUBLE_EQ(learning_rate(config, 4 + i, 30), rates[i]);
  config.min_lr = 0.25f;
  EXPECT_DOUBLE_EQ(learning_rate(config, 14, 30), std::pow(0.875, 10));
  EXPECT_DOUBLE_EQ(learning_rate(config, 15, 30), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(config, 30, 30), 0.25);
}

TEST(Schedule, FallsOnPlateausDownToTheMinimum) {
  ScheduleConfig config = schedule(Kind::kPlateau);
  config.plateau_factor = 0.5f;
  EXPECT_DOUBLE_EQ(learning_rate(config, 50, 100, 0), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 50, 100, 1), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 50, 100, 2), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(config, 50, 100, 90), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1, 100, 1), 0.25);  // in the warm-up
}

TEST(Schedule, StaysStableThenDecays) {
  ScheduleConfig config = schedule(Kind::kWarmupStableDecay);
  config.decay_steps = 10;
  EXPECT_DOUBLE_EQ(learning_rate(config, 89, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 95, 100), 0.25 + 0.75 * 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 100, 100), 0.25);
}

// The rates of PyTorch's OneCycleLR with total_steps=20.
TEST(Schedule, OneCycleIsPyTorchs) {
  ScheduleConfig config = schedule(Kind::kOneCycle);
  config.warmup_steps = 0;
  config.min_lr = 4e-6f;
  const double rates[] = {0.04,        0.131671843, 0.371671843, 0.668328157,  0.908328157,
                          1,           0.987464006, 0.950484632, 0.890916178,  0.811745654,
                          0.716943002, 0.611262022, 0.500002,    0.388741978,  0.283060998,
                          0.188258346, 0.109087822, 0.049519368, 0.0125399938, 4e-06};
  for (int64_t step = 0; step < 20; ++step)
    EXPECT_NEAR(learning_rate(config, step, 20), rates[step], 1e-9) << step;
}

// transformers' cosine_with_hard_restarts of 3 cycles, after a warm-up.
TEST(Schedule, CosineBeginsAnew) {
  ScheduleConfig config = schedule(Kind::kCosineRestarts);
  config.min_lr = 0;
  config.cycles = 3;
  const double rates[] = {1,           0.945503262,  0.793892626,  0.578217233,  0.345491503,
                          0.146446609, 0.0244717419, 0.99384417,   0.904508497,  0.72699525,
                          0.5,         0.27300475,   0.0954915028, 0.0061558297, 0.975528258,
                          0.853553391, 0.654508497,  0.421782767,  0.206107374,  0.0544967379};
  for (int64_t step = 4; step < 24; ++step)
    EXPECT_NEAR(learning_rate(config, step, 24), rates[step - 4], 1e-9) << step;
  EXPECT_EQ(learning_rate(config, 24, 24), 0);
  for (int64_t cycles = 1; cycles < 60; ++cycles) {
    config.cycles = cycles;
    for (int64_t cycle = 0; cycle < cycles; ++cycle)
      EXPECT_EQ(learning_rate(config, 4 + 10 * cycle, 4 + 10 * cycles), 1) << cycles;
  }
}

}  // namespace
}  // namespace lockstep::train
