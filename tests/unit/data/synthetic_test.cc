// Catches synthetic data that depends on anything but (seed, index), cannot be learnt, or costs
// memory.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "files.h"

namespace lockstep::data {
namespace {

OpenedData open(const SyntheticConfig& synthetic,
                const config::ModelTraits& model,
                uint64_t seed = 1) {
  DataConfig config;
  config.source = synthetic;
  return open_data(config, model, seed, true);
}

TEST(Synthetic, IsAPureFunctionOfSeedAndIndex) {
  const SyntheticConfig small{.samples = 100, .features = 20, .classes = 3};
  const OpenedData a = open(small, test::mlp()), b = open(small, test::mlp()),
                   c = open(small, test::mlp(), 2);
  for (int64_t i : {0, 1, 99}) {
    const auto x = test::read<float, int32_t>(*a.train, {.index = i});
    const auto y = test::read<float, int32_t>(*b.train, {.index = i, .epoch = 3, .augment = true});
    EXPECT_EQ(x.input, y.input);
    EXPECT_EQ(x.target, y.target);
    EXPECT_NE(x.input, (test::read<float, int32_t>(*c.train, {.index = i}).input));
  }
  EXPECT_EQ(a.summary.classes, 3);
  EXPECT_EQ(a.summary.features, 20);
}

TEST(Synthetic, IsStandardisedAndItsClassesAreSeparable) {
  constexpr int64_t kSamples = 2000, kFeatures = 64, kClasses = 5;
  const OpenedData opened =
      open({.samples = kSamples, .features = kFeatures, .classes = kClasses}, test::mlp());
  std::vector<std::vector<double>> means(kClasses, std::vector<double>(kFeatures));
  std::vector<int> counts(kClasses);
  double sum = 0, squares = 0;
  std::vector<test::Sample<float, int32_t>> samples;
  for (int64_t i = 0; i < kSamples; ++i) {
    samples.push_back(test::read<float, int32_t>(*opened.train, {.index = i}));
    const int32_t label = samples.back().target[0];
    ASSERT_GE(label, 0);
    ASSERT_LT(label, kClasses);
    ++counts[label];
    for (int64_t f = 0; f < kFeatures; ++f) {
      const double x = samples.back().input[f];
      sum += x;
      squares += x * x;
      means[label][f] += x;
    }
  }
  EXPECT_NEAR(sum / (kSamples * kFeatures), 0, 0.1);  // the class means are 0.45 * random signs
  EXPECT_NEAR(squares / (kSamples * kFeatures), 1, 0.02);  // deviation of the estimate: 0.003
  // Nearest class mean is a linear classifier; a tenth of the errors of chance would already be
  // learning.
  int right = 0;
  for (const auto& sample : samples) {
    std::vector<double> distance(kClasses);
    for (int64_t c = 0; c < kClasses; ++c)
      for (int64_t f = 0; f < kFeatures; ++f)
        distance[c] += std::pow(sample.input[f] - means[c][f] / counts[c], 2);
    right +=
        std::min_element(distance.begin(), distance.end()) - distance.begin() == sample.target[0];
  }
  EXPECT_GT(right, kSamples * 9 / 10);
}

TEST(Synthetic, RegressionTargetsAreALinearMap) {
  const OpenedData opened =
      open({.samples = 64, .features = 8, .classes = 3}, test::mlp(Loss::kMeanSquaredError));
  EXPECT_EQ(opened.summary.target_columns, 3);
  EXPECT_EQ(opened.summary.classes, 0);
  // Solve for the map from the first 8 samples by Gaussian elimination; the others must obey it.
  double system[8][11];
  for (int64_t i = 0; i < 8; ++i) {
    const auto s = test::read<float, float>(*opened.train, {.index = i});
    for (int j = 0; j < 8; ++j) system[i][j] = s.input[j];
    for (int j = 0; j < 3; ++j) system[i][8 + j] = s.target[j];
  }
  for (int p = 0; p < 8; ++p) {
    int best = p;
    for (int i = p; i < 8; ++i)
      if (std::abs(system[i][p]) > std::abs(system[best][p])) best = i;
    std::swap(system[p], system[best]);
    for (int i = 0; i < 8; ++i) {
      if (i == p) continue;
      const double factor = system[i][p] / system[p][p];
      for (int j = p; j < 11; ++j) system[i][j] -= factor * system[p][j];
    }
  }
  for (int64_t i = 8; i < 64; ++i) {
    const auto s = test::read<float, float>(*opened.train, {.index = i});
    for (int j = 0; j < 3; ++j) {
      double y = 0;
      for (int k = 0; k < 8; ++k) y += s.input[k] * system[k][8 + j] / system[k][k];
      // float32 sums of 8 terms of about 1, times the condition of the system (below 1000)
      EXPECT_NEAR(s.target[j], y, 1e-3);
    }
  }
}

TEST(Synthetic, BinaryTargetsAreBalanced) {
  const OpenedData opened =
      open({.samples = 1000, .features = 30}, test::mlp(Loss::kBinaryCrossEntropy));
  EXPECT_EQ(opened.train->target().shape, Shape{1});
  int ones = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const float y = test::read<float, float>(*opened.train, {.index = i}).target[0];
    ASSERT_TRUE(y == 0 || y == 1);
    ones += y == 1;
  }
  EXPECT_NEAR(ones, 500, 100);  // six deviations of 16
}

TEST(Synthetic, TokensFollowTheirRuleMostly) {
  const config::ModelTraits model = test::gpt(32);
  const OpenedData opened = open({.samples = 500, .classes = 97}, model);
  EXPECT_EQ(opened.summary.classes, 97);
  std::map<int32_t, std::map<int32_t, int>> next;
  for (int64_t i = 0; i < 500; ++i) {
    const auto s = test::read<int32_t, int32_t>(*opened.train, {.index = i});
    for (int t = 0; t < 32; ++t) {
      ASSERT_GE(s.input[t], 0);
      ASSERT_LT(s.input[t], 97);
      ASSERT_TRUE(t == 0 || s.input[t] == s.target[t - 1]);
      ++next[s.input[t]][s.target[t]];
    }
  }
  EXPECT_EQ(next.size(), 97u);
  int usual = 0;
  for (const auto& [token, followers] : next) {
    int most = 0;
    for (const auto& [follower, count] : followers) most = std::max(most, count);
    usual += most;
  }
  EXPECT_NEAR(usual / 16000.0, 7.0 / 8, 0.02);  // deviation 0.0026
}

TEST(Synthetic, BoundsItsMemory) {
  const OpenedData wide = open({.samples = int64_t{1} << 40, .features = 1'000'000}, test::mlp());
  EXPECT_LE(wide.train->resident_bytes(), int64_t{65} << 20);
  EXPECT_EQ(wide.train->samples(), int64_t{1} << 40);
  const auto far = test::read<float, int32_t>(*wide.train, {.index = (int64_t{1} << 40) - 1});
  EXPECT_EQ(far.input.size(), 1'000'000u);
  const OpenedData many = open({.samples = int64_t{1} << 40, .features = 4}, test::mlp());
  EXPECT_LE(many.train->resident_bytes(), 4096 * 20);
}

}  // namespace
}  // namespace lockstep::data
