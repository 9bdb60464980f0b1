// Catches: a share of likely tokens that is one short, penalties of negative logits that make them
// likelier, ties that depend on the order of sorting, draws that leave what may be drawn.
#include "runtime/generate/token_sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace lockstep::generate {
namespace {

// How often each token is drawn in 4,000 places.
std::map<int32_t, int> draw(const SamplingOptions& options,
                            const std::vector<float>& logits,
                            const std::vector<int32_t>& before = {}) {
  TokenSampler sampler(options, static_cast<int64_t>(logits.size()));
  std::map<int32_t, int> counts;
  for (uint32_t place = 0; place < 4000; ++place)
    ++counts[sampler.sample(logits.data(), before, 0, place)];
  return counts;
}

TEST(TokenSampler, AtTemperatureZeroTheFirstOfTheLikeliestIsTaken) {
  EXPECT_EQ(draw({.temperature = 0}, {1, 3, 2, 3}), (std::map<int32_t, int>{{1, 4000}}));
}

TEST(TokenSampler, DrawsInProportion) {
  const auto counts = draw({.temperature = 2}, {0, 2 * std::log(3.0f)});
  EXPECT_NEAR(counts.at(1), 3000, 150);
  EXPECT_NEAR(counts.at(0), 1000, 150);
}

TEST(TokenSampler, TopKKeepsTheLikeliest) {
  const auto counts = draw({.top_k = 2}, {1, 5, 1, 5.5f, 4.9f});
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_TRUE(counts.count(1) == 1 && counts.count(3) == 1);
}

// Shares: 0.5, 0.3, 0.2.
TEST(TokenSampler, TopPKeepsWhatComesToTheShare) {
  const std::vector<float> logits = {std::log(0.3f), std::log(0.2f), std::log(0.5f)};
  EXPECT_EQ(draw({.top_p = 0.45}, logits), (std::map<int32_t, int>{{2, 4000}}));
  const auto two = draw({.top_p = 0.6}, logits);
  EXPECT_EQ(two.count(1), 0u);
  EXPECT_NEAR(two.at(2), 2500, 150);
  EXPECT_EQ(draw({.top_p = 0.95}, logits).size(), 3u);
  EXPECT_EQ(draw({.top_p = 0}, logits).size(), 1u);
}

TEST(TokenSampler, WhatIsThereAlreadyBecomesLessLikely) {
  const SamplingOptions options{.temperature = 0, .repetition_penalty = 2};
  EXPECT_EQ(draw(options, {3, 2}, {0}).begin()->first, 1);
  EXPECT_EQ(draw(options, {-1, -1.5f}, {0, 0}).begin()->first, 1);
  EXPECT_EQ(draw(options, {3, 1}, {0, 0}).begin()->first, 0);  // once, however often it is there
}

TEST(TokenSampler, SequencesDrawOnTheirOwn) {
  TokenSampler sampler({}, 1000);
  const std::vector<float> logits(1000, 0);
  std::vector<int32_t> first, second, again;
  for (uint32_t place = 0; place < 20; ++place) {
    first.push_back(sampler.sample(logits.data(), {}, 0, place));
    second.push_back(sampler.sample(logits.data(), {}, 1, place));
    again.push_back(sampler.sample(logits.data(), {}, 0, place));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, second);
}

}  // namespace
}  // namespace lockstep::generate
