// Catches: shares of another distribution than Beta's, that depend on who draws them or repeat from
// step to step or lane to lane, a training that is not mixed or not reproducible, and an evaluation
// that is mixed.
#include "runtime/train/step/mixup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/reference/runs.h"

namespace lockstep::train {
namespace {

// Made with the formulas of mixup.cc by a program of its own, in Python.
TEST(DrawMix, IsThisFunctionOfSeedStepAndLane) {
  const float kTolerance = 1e-6f;  // a C library may round the last place otherwise
  EXPECT_NEAR(draw_mix(0.2f, 1, 0, 0), 0.9970342810081574f, kTolerance);
  EXPECT_NEAR(draw_mix(0.2f, 1, 0, 1), 0.998265476899303f, kTolerance);
  EXPECT_NEAR(draw_mix(0.2f, 1, 1, 0), 0.9923720925862782f, kTolerance);
  EXPECT_NEAR(draw_mix(1, 2, 3, 4), 0.7554414594677772f, kTolerance);
  EXPECT_NEAR(draw_mix(0.4f, 0x1234567890, 1'000'000, 63), 0.9705538684054625f, kTolerance);
  EXPECT_NEAR(draw_mix(30, 1, 0, 0), 0.5541109457615084f, kTolerance);
  EXPECT_EQ(draw_mix(0.001f, 1, 0, 0), 1.0f);
}

double beta(double a) { return std::exp(2 * std::lgamma(a) - std::lgamma(2 * a)); }  // B(a, a)

// The probability that b ~ Beta(a, a) is below x <= 1/2: the integral's power series in x.
double probability_below(double x, double a) {
  double sum = 1 / a, term = 1;
  for (int n = 1; n < 200; ++n) {
    term *= (n - a) / n * x;
    sum += term / (a + n);
  }
  return std::pow(x, a) * sum / beta(a);
}

class DrawMixAlpha : public ::testing::TestWithParam<float> {};

TEST_P(DrawMixAlpha, HasTheDistributionOfTheLargerShare) {
  const float alpha = GetParam();
  constexpr int kLanes = 4, kDraws = 20'000;
  std::vector<double> shares;
  double sum = 0, squares = 0;
  for (uint32_t i = 0; i < kDraws; ++i) {
    const double share = draw_mix(alpha, 7, i / kLanes, i % kLanes);
    ASSERT_TRUE(share >= 0.5 && share <= 1) << share;
    shares.push_back(share);
    sum += share;
    squares += (share - 0.5) * (share - 0.5);
  }
  // Of b: E|b - 1/2| and E(b - 1/2)^2; at four standard deviations of a mean of kDraws.
  const double distance = std::exp2(-2 * alpha) / (alpha * beta(alpha));
  const double variance = 1 / (4 * (2 * static_cast<double>(alpha) + 1));
  EXPECT_NEAR(
      sum / kDraws, 0.5 + distance, 4 * std::sqrt((variance - distance * distance) / kDraws));
  EXPECT_NEAR(squares / kDraws, variance, 4 * 0.25 * std::sqrt(variance / kDraws));
  // Kolmogorov and Smirnov: one sequence in a thousand is farther off.
  std::sort(shares.begin(), shares.end());
  for (int i = 1; i < 1000; ++i) {
    const double at = 0.5 + i / 2000.0;
    const auto below = std::lower_bound(shares.begin(), shares.end(), at) - shares.begin();
    EXPECT_NEAR(static_cast<double>(below) / kDraws,
                1 - 2 * probability_below(1 - at, alpha),
                1.95 / std::sqrt(kDraws))
        << "below " << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Alphas,
                         DrawMixAlpha,
                         ::testing::Values(0.05f, 0.2f, 0.5f, 1.0f, 2.0f, 30.0f));

TEST(DrawMix, IsANumberAtTheEndsOfWhatIsAllowed) {
  for (uint32_t step = 0; step < 1000; ++step) {
    EXPECT_EQ(draw_mix(1e-45f, 1, step, 0), 1.0f);
    EXPECT_NEAR(draw_mix(100, 1, step, 0), 0.5, 0.2);
  }
}

TEST(DrawMix, DiffersFromSeedToSeedStepToStepAndLaneToLane) {
  std::set<float> seen;
  for (uint64_t seed : {uint64_t{1}, uint64_t{2}, uint64_t{1} << 40}) {
    for (uint32_t step = 0; step < 20; ++step) {
      for (uint32_t lane = 0; lane < 20; ++lane) seen.insert(draw_mix(5, seed, step, lane));
    }
  }
  EXPECT_GT(seen.size(), 1190u);  // of 1200; some 2^23 floats have a share
}

// 24 images of CIFAR's layout, and a network without batch norm, whose evaluation depends on its
// weights alone.
class MixupTraining : public ::testing::Test {
 protected:
  MixupTraining() {
    std::string bytes;
    for (uint32_t i = 0; i < 24 * 3073; ++i)
      bytes += static_cast<char>(i % 3073 == 0 ? i / 3073 % 10 : (i * 2654435761u) >> 24);
    folder_.write("images.bin", bytes);
  }

  TrainResult train(const std::string& name,
                    int ranks,
                    const testing::TrainOptions& options,
                    std::vector<std::string> overrides = {}) const {
    overrides.push_back("data.dir=" + folder_.path().string());
    return testing::train_in(folder_.path() / name, {kConfig, ranks, options, overrides});
  }

  static constexpr const char* kConfig = R"(
    model { lenet { label_smoothing: 0.1 } }
    data { cifar { train: "images.bin" eval: "images.bin" } }
    train { global_batch: 12 lanes: 4 steps: 6 log_every: 100 mixup: 0.8 }
    optimizer { sgd { momentum: 0.9 } }
    schedule { lr: 0.02 }
    comm { bucket_mib: 0.02 })";
  testing::TemporaryFolder folder_;
};

TEST_F(MixupTraining, HasTheSameBitsOnAnyNumberOfRanksAndResumed) {
  const TrainResult alone = train("1", 1, testing::whole());
  for (int ranks : {2, 4}) {
    const TrainResult many = train(std::to_string(ranks), ranks, testing::whole());
    EXPECT_EQ(many.weights_hash, alone.weights_hash) << ranks << " ranks";
    EXPECT_EQ(many.loss, alone.loss) << ranks << " ranks";
  }
  train("cut", 2, testing::until(3));
  EXPECT_EQ(train("cut", 1, testing::resumed()).weights_hash, alone.weights_hash);
  EXPECT_NE(train("plain", 1, testing::whole(), {"train.mixup=0"}).weights_hash,
            alone.weights_hash);
}

TEST_F(MixupTraining, LeavesEvaluationsAlone) {
  const std::vector<std::string> still = {"schedule.lr=1e-30"};  // weights stay as they began
  const TrainResult mixed = train("mixed", 1, testing::whole(), still);
  const TrainResult plain = train("plain", 1, testing::whole(), {still.front(), "train.mixup=0"});
  ASSERT_EQ(mixed.weights_hash, plain.weights_hash);
  EXPECT_NE(mixed.loss, plain.loss);
  EXPECT_EQ(mixed.evaluation->loss, plain.evaluation->loss);
  EXPECT_EQ(mixed.evaluation->accuracy, plain.evaluation->accuracy);
}

}  // namespace
}  // namespace lockstep::train
