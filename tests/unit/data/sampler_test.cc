// Catches a sampler that repeats or drops samples, ignores its key, or prefers some orders.

#include "runtime/data/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep::data {
namespace {

std::vector<int64_t> order(int64_t samples, uint64_t seed, int64_t epoch, bool shuffle = true) {
  const Sampler sampler(samples, seed, epoch, shuffle);
  std::vector<int64_t> indices(samples);
  for (int64_t i = 0; i < samples; ++i) indices[i] = sampler[i];
  return indices;
}

class SamplerSizes : public ::testing::TestWithParam<int64_t> {};

TEST_P(SamplerSizes, VisitsEverySampleOnce) {
  for (int64_t epoch : {0, 1, 77}) {
    std::vector<int> visits(GetParam());
    for (int64_t index : order(GetParam(), 5, epoch)) {
      ASSERT_GE(index, 0);
      ASSERT_LT(index, GetParam());
      ++visits[index];
    }
    for (int64_t i = 0; i < GetParam(); ++i) ASSERT_EQ(visits[i], 1) << "sample " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         SamplerSizes,
                         ::testing::Values(1,
                                           2,
                                           3,
                                           4,
                                           5,
                                           7,
                                           8,
                                           9,
                                           15,
                                           16,
                                           17,
                                           31,
                                           33,
                                           100,
                                           127,
                                           128,
                                           255,
                                           256,
                                           257,
                                           1000,
                                           4096,
                                           4097,
                                           60000,
                                           65536));

TEST(Sampler, IsTheIdentityWithoutShuffling) {
  std::vector<int64_t> identity(1000);
  std::iota(identity.begin(), identity.end(), 0);
  EXPECT_EQ(order(1000, 5, 3, false), identity);
}

TEST(Sampler, DependsOnSeedAndEpochOnly) {
  EXPECT_EQ(order(1000, 5, 3), order(1000, 5, 3));
  EXPECT_NE(order(1000, 5, 3), order(1000, 5, 4));
  EXPECT_NE(order(1000, 5, 3), order(1000, 6, 3));
  EXPECT_NE(order(1000, 5, 3), order(1000, 5 + (uint64_t{1} << 32), 3));
}

TEST(Sampler, ReachesAllOrdersOfThree) {
  std::vector<int> seen(27);
  for (int64_t epoch = 0; epoch < 600; ++epoch) {
    const auto indices = order(3, 1, epoch);
    ++seen[indices[0] * 9 + indices[1] * 3 + indices[2]];
  }
  // Six orders, 100 each on average; binomial deviation 9.1, so 50 is over five deviations away.
  int orders = 0;
  for (int count : seen) {
    orders += count > 0;
    if (count > 0) {
      EXPECT_NEAR(count, 100, 50);
    }
  }
  EXPECT_EQ(orders, 6);
}

// Chi-squared of the sample found at each of a few positions, over many epochs.
TEST(Sampler, PutsSamplesAnywhereEquallyOften) {
  constexpr int64_t kSamples = 50;
  constexpr int kEpochs = 20000;
  for (int64_t position : {0, 1, 24, 49}) {
    std::vector<int> counts(kSamples);
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch)
      ++counts[Sampler(kSamples, 9, epoch, true)[position]];
    double chi_squared = 0;
    constexpr double kExpected = static_cast<double>(kEpochs) / kSamples;
    for (int count : counts) chi_squared += (count - kExpected) * (count - kExpected) / kExpected;
    EXPECT_LT(chi_squared, 100.0) << position;  // 49 degrees of freedom: 99.999% lie below 99
    EXPECT_GT(chi_squared, 15.0) << position;   // suspiciously even: 0.0001% lie below 15
  }
}

// The samples at two positions must be independent (but for being different).
TEST(Sampler, PutsPairsAnywhereEquallyOften) {
  for (int samples : {10, 33, 64}) {
    for (const auto& [first, second] :
         {std::pair(0, 1), std::pair(1, samples / 2), std::pair(samples - 1, 3)}) {
      constexpr double kExpected = 30;
      const int pairs = samples * (samples - 1);
      std::vector<int> counts(samples * samples);
      for (int64_t epoch = 0; epoch < pairs * kExpected; ++epoch) {
        const Sampler sampler(samples, 4, epoch, true);
        ++counts[sampler[first] * samples + sampler[second]];
      }
      double chi_squared = 0;
      for (int i = 0; i < samples * samples; ++i)
        if (i / samples != i % samples)
          chi_squared += std::pow(counts[i] - kExpected, 2) / kExpected;
      // Nearly normal, with mean pairs - 1 and variance twice that.
      const double deviations = (chi_squared - (pairs - 1)) / std::sqrt(2.0 * (pairs - 1));
      EXPECT_NEAR(deviations, 0, 5) << first << " and " << second << " of " << samples;
    }
  }
}

// A permutation with structure (such as a rotation) has neighbours that stay neighbours.
TEST(Sampler, SeparatesNeighbours) {
  const auto indices = order(60000, 1, 0);
  int close = 0;
  for (size_t i = 1; i < indices.size(); ++i) close += std::abs(indices[i] - indices[i - 1]) <= 3;
  EXPECT_LT(close, 30);  // 6 expected: 60000 pairs * 6 / 60000
}

TEST(Sampler, TakesHugeSets) {
  const int64_t samples = (int64_t{1} << 40) + 12345;
  const Sampler sampler(samples, 3, 0, true);
  int64_t most = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t index = sampler[samples - 1 - i];
    ASSERT_GE(index, 0);
    ASSERT_LT(index, samples);
    most = std::max(most, index);
  }
  EXPECT_GT(most, samples / 100 * 98);  // the high bits vary too
}

}  // namespace
}  // namespace lockstep::data
