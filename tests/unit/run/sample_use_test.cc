// Catches: a run of which nobody hears that it takes samples many times in a step, and warnings of
// runs that are as long as they were asked to be.
#include "runtime/run/sample_use.h"

#include <gtest/gtest.h>

namespace lockstep::run {
namespace {

std::string warning(int64_t batch,
                    int64_t lanes,
                    int64_t steps,
                    double epochs,
                    int64_t samples,
                    bool drawn = false) {
  TrainConfig train;
  train.global_batch = batch;
  train.lanes = lanes;
  train.steps = steps;
  return sample_use_warning(train, epochs, samples, drawn);
}

TEST(SampleUse, FewerSamplesThanABatch) {
  EXPECT_EQ(warning(64, 8, 1, 3, 5),
            "5 training samples are fewer than train.global_batch (64): every step takes each of "
            "them 12 to 13 times, and the run of 1 step is 12.8 epochs, not 3 (train.epochs); set "
            "train.lanes and train.global_batch to at most 4");
  EXPECT_EQ(warning(64, 8, 10, 0, 32),
            "32 training samples are fewer than train.global_batch (64): every step takes each of "
            "them 2 times, and the run of 10 steps is 20 epochs; set train.global_batch to at most "
            "32");
  EXPECT_NE(warning(64, 8, 1, 0, 5, true).find("of them about 12.8 times"), std::string::npos);
  EXPECT_NE(warning(500, 4, 1, 2, 250).find("is 2 epochs; set"), std::string::npos);
  EXPECT_NE(warning(64, 8, 1, 0, 63).find("1 to 2 times"), std::string::npos);
  EXPECT_NE(warning(64, 8, 1, 0, 63).find("at most 56"), std::string::npos);
}

TEST(SampleUse, StepsThatAreFarMoreThanTheEpochs) {
  EXPECT_EQ(warning(64, 8, 2, 1, 65),
            "the run is 1.97 epochs of 65 training samples, not 1 (train.epochs), because it has 2 "
            "steps of 64 samples (train.global_batch) and no smaller one; set a smaller "
            "train.global_batch");
  EXPECT_NE(warning(64, 8, 1, 0.01, 1000).find("0.064 epochs"), std::string::npos);
}

TEST(SampleUse, OrdinaryRunsHaveNone) {
  EXPECT_EQ(warning(64, 8, 1, 1, 64), "");
  EXPECT_EQ(warning(64, 8, 2, 1, 100), "");  // 1.28 epochs
  EXPECT_EQ(warning(64, 8, 47, 3, 1000), "");
  EXPECT_EQ(warning(64, 8, 100'000, 0, 64), "");
}

}  // namespace
}  // namespace lockstep::run
