// Catches: generated texts that are no samples as text_samples.h has them, or whose targets have
// nothing to do with their tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "files.h"
#include "runtime/data/text/text_samples.h"

namespace lockstep::data {
namespace {

constexpr int64_t kTime = 24, kVocabulary = 40, kSamples = 300;

config::ModelTraits encoder(config::TextTask task, int64_t outputs, int64_t segments = 2) {
  config::ModelTraits traits;
  traits.section = "bert";
  traits.input = config::ModelInput::kTokens;
  traits.context = kTime;
  traits.text_task = task;
  traits.segments = segments;
  traits.vocabulary = kVocabulary;
  traits.outputs = outputs;
  return traits;
}

OpenedData open(const config::ModelTraits& model, uint64_t seed = 1) {
  DataConfig config;
  config.source = SyntheticConfig{.samples = kSamples, .classes = 5};
  return open_data(config, model, seed, true);
}

int32_t cell(const std::vector<int32_t>& sample, TextRow row, int64_t t) {
  return sample[static_cast<size_t>(row * kTime + t)];
}

TEST(SyntheticText, HasTokensOfOneDocumentAndPaddingBehindThem) {
  const OpenedData opened = open(encoder(config::TextTask::kTokenClasses, 6));
  EXPECT_EQ(opened.summary.vocabulary, kVocabulary);
  EXPECT_EQ(opened.summary.classes, 6);
  ASSERT_EQ(opened.train->input().shape, (Shape{4, kTime}));
  std::map<int64_t, int> lengths;
  bool has_pairs = false;
  for (int64_t i = 0; i < kSamples; ++i) {
    const auto sample = test::read<int32_t, int32_t>(*opened.train, {.index = i});
    const int64_t length = opened.train->length(i);
    ++lengths[length];
    int32_t segment = 0;
    for (int64_t t = 0; t < kTime; ++t) {
      const bool inside = t < length;
      EXPECT_EQ(cell(sample.input, kDocumentRow, t), inside ? 0 : -1);
      EXPECT_EQ(cell(sample.input, kPositionRow, t), inside ? t : 0);
      EXPECT_EQ(sample.target[static_cast<size_t>(t)] >= 0, inside);
      EXPECT_LT(sample.target[static_cast<size_t>(t)], 6);
      EXPECT_LT(cell(sample.input, kTokenRow, t), kVocabulary);
      if (!inside) {
        EXPECT_EQ(cell(sample.input, kTokenRow, t), 0);
        EXPECT_EQ(cell(sample.input, kSegmentRow, t), 0);
        continue;
      }
      EXPECT_GE(cell(sample.input, kSegmentRow, t), segment);
      segment = cell(sample.input, kSegmentRow, t);
      has_pairs |= t > 0 && segment == 1 && cell(sample.input, kSegmentRow, 0) == 0;
    }
  }
  EXPECT_EQ(lengths.begin()->first, 1);
  EXPECT_EQ(lengths.rbegin()->first, kTime);
  EXPECT_TRUE(has_pairs);
}

TEST(SyntheticText, IsAPureFunctionOfSeedAndIndex) {
  const config::ModelTraits model = encoder(config::TextTask::kMaskedTokens, kVocabulary);
  const OpenedData a = open(model), b = open(model), c = open(model, 2);
  const auto x = test::read<int32_t, int32_t>(*a.train, {.index = 7});
  const auto y = test::read<int32_t, int32_t>(*b.train, {.index = 7, .epoch = 2, .augment = true});
  EXPECT_EQ(x.input, y.input);
  EXPECT_EQ(x.target, y.target);
  EXPECT_NE(x.input, (test::read<int32_t, int32_t>(*c.train, {.index = 7}).input));
}

TEST(SyntheticText, HidesAShareOfTheTokens) {
  const OpenedData opened = open(encoder(config::TextTask::kMaskedTokens, kVocabulary));
  int64_t hidden = 0, tokens = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const auto sample = test::read<int32_t, int32_t>(*opened.train, {.index = i});
    tokens += opened.train->length(i);
    for (int64_t t = 0; t < kTime; ++t) {
      const int32_t target = sample.target[static_cast<size_t>(t)];
      const bool is_mask = cell(sample.input, kTokenRow, t) == kVocabulary - 1;
      EXPECT_EQ(target >= 0, is_mask);  // which no other token is
      EXPECT_LT(target, kVocabulary - 1);
      hidden += is_mask;
    }
  }
  // Of some 3,700 tokens: three standard deviations are 0.017.
  EXPECT_NEAR(static_cast<double>(hidden) / static_cast<double>(tokens), 1.0 / 7, 0.02);
}

TEST(SyntheticText, ClassesAndValuesDependOnTheTokens) {
  constexpr int64_t kClasses = 5;
  const OpenedData opened = open(encoder(config::TextTask::kSequenceClass, kClasses));
  ASSERT_EQ(opened.train->target().shape, Shape{});
  int64_t of_label = 0, tokens = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const auto sample = test::read<int32_t, int32_t>(*opened.train, {.index = i});
    for (int64_t t = 0; t < opened.train->length(i); ++t, ++tokens)
      of_label += cell(sample.input, kTokenRow, t) % kClasses == sample.target[0];
  }
  // A half, and a fifth of the rest.
  EXPECT_NEAR(static_cast<double>(of_label) / static_cast<double>(tokens), 0.6, 0.03);

  // Texts of one token have values of 1 or -1, by the token.
  const OpenedData values = open(encoder(config::TextTask::kSequenceValues, 2));
  EXPECT_EQ(values.summary.target_columns, 2);
  std::map<int32_t, std::vector<float>> by_token;
  int seen = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    if (values.train->length(i) != 1) continue;
    const auto sample = test::read<int32_t, float>(*values.train, {.index = i});
    for (const float value : sample.target) EXPECT_EQ(std::abs(value), 1.0f);
    const auto [at, is_new] = by_token.try_emplace(sample.input[0], sample.target);
    EXPECT_TRUE(is_new || at->second == sample.target);
    ++seen;
  }
  EXPECT_GT(seen, 3);
}

}  // namespace
}  // namespace lockstep::data
