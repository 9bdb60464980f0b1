// Catches: a factor that grows too early or without end, that does not fall, or that a checkpoint
// does not bring back.
#include "runtime/train/step/loss_scale.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

RunConfig fp16() {
  RunConfig config;
  config.execution.precision = Precision::kFp16;
  config.execution.loss_scale = 1024;
  config.execution.loss_scale_growth_steps = 3;
  return config;
}

TEST(LossScale, IsOneForOtherPrecisions) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    RunConfig config;
    config.execution.precision = precision;
    LossScale scale(config);
    EXPECT_FALSE(scale.dynamic());
    for (const bool finite : {false, true, true, true}) scale.step_done(finite);
    EXPECT_EQ(scale.value(), 1);
    EXPECT_EQ(scale.state().skipped, 1);
  }
}

TEST(LossScale, IsForGradientsThatTravelAsFp16Too) {
  RunConfig config;
  config.comm.wire_dtype = CommConfig::WireType::kFp16;
  LossScale scale(config);
  EXPECT_TRUE(scale.dynamic());
  EXPECT_EQ(scale.value(), 65536);
}

TEST(LossScale, GrowsAfterGoodStepsAndFallsAtOnce) {
  LossScale scale(fp16());
  scale.step_done(true);
  scale.step_done(true);
  EXPECT_EQ(scale.value(), 1024);
  scale.step_done(true);
  EXPECT_EQ(scale.value(), 2048);
  scale.step_done(true);
  scale.step_done(true);
  scale.step_done(false);  // and the good steps count anew
  EXPECT_EQ(scale.value(), 1024);
  EXPECT_EQ(scale.state().skipped, 1);
  scale.step_done(true);
  scale.step_done(true);
  EXPECT_EQ(scale.value(), 1024);
  scale.step_done(true);
  EXPECT_EQ(scale.value(), 2048);
}

TEST(LossScale, HasBounds) {
  LossScale scale(fp16());
  for (int i = 0; i < 300; ++i) scale.step_done(true);
  EXPECT_EQ(scale.value(), 0x1p24);
  for (int i = 0; i < 38; ++i) scale.step_done(false);
  EXPECT_FALSE(scale.exhausted());
  scale.step_done(false);
  EXPECT_TRUE(scale.exhausted());
}

TEST(LossScale, GoesOnFromItsState) {
  LossScale first(fp16());
  for (const bool finite : {true, false, true, true}) first.step_done(finite);
  LossScale second(fp16());
  second.restore(first.state());
  EXPECT_EQ(second.state(), first.state());
  first.step_done(true);
  second.step_done(true);
  EXPECT_EQ(second.value(), first.value());
  EXPECT_EQ(second.value(), 1024);
}

}  // namespace
}  // namespace lockstep::train
