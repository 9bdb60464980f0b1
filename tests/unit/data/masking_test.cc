// Catches: special tokens or padding that are hidden, shares that are not those asked for, masks
// that depend on more than (seed, epoch, sample, place), evaluations that differ, documents that
// lose their last token, samples without a target.
#include "runtime/data/text/masking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "texts.h"

namespace lockstep::data {
namespace {

using test::encoder;
using test::error_of;
using test::expect_parts;
using Sample = test::Sample<int32_t, int32_t>;

constexpr int64_t kContext = 64;
constexpr int32_t kMask = 4, kSep = 3;

// Documents of 1 to 30 tokens, [SEP] after each and after every tenth.
struct Stream {
  Stream() {
    for (uint64_t d = 0; d < 300; ++d) {
      borders.push_back(tokens.size());
      for (uint64_t t = 0; t < 1 + d * d % 29; ++t)
        tokens.push_back(static_cast<uint16_t>(t % 10 == 9 ? kSep : 5 + (d + 3 * t) % 10));
      tokens.push_back(kSep);
    }
  }
  std::vector<uint16_t> tokens;
  std::vector<uint64_t> borders;
};

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class MaskedTokens : public ::testing::Test {
 protected:
  MaskedTokens() {
    data_.dir = folder_.path();
    config_.tokenizer = folder_.write("vocab.txt", test::kVocabulary);
    config_.train = folder_.write("tokens", bytes_of(stream_.tokens));
    config_.eval = config_.train;
  }
  OpenedData open(TokensConfig::Packing packing = TokensConfig::Packing::kNone, uint64_t seed = 1) {
    config_.packing = packing;
    if (packing != TokensConfig::Packing::kNone)
      config_.train_documents = config_.eval_documents =
          folder_.write("borders", bytes_of(stream_.borders));
    data_.source = config_;
    return open_data(data_, encoder(config::TextTask::kMaskedTokens, kContext), seed, true);
  }
  static std::vector<Sample> epoch_of(const Dataset& dataset, int64_t epoch, bool augment = true) {
    std::vector<Sample> samples;
    for (int64_t i = 0; i < dataset.samples(); ++i)
      samples.push_back(test::read<int32_t, int32_t>(dataset, {i, epoch, augment}));
    return samples;
  }
  static size_t differing(const std::vector<Sample>& a, const std::vector<Sample>& b) {
    size_t count = 0;
    for (size_t i = 0; i < a.size(); ++i) count += a[i].target != b[i].target ? 1 : 0;
    return count;
  }

  test::TemporaryFolder folder_;
  Stream stream_;
  DataConfig data_;
  TokensConfig config_;
};

// A share of n draws is within five standard deviations of p.
void expect_share(int64_t count, int64_t of, double p) {
  EXPECT_NEAR(static_cast<double>(count) / static_cast<double>(of),
              p,
              5 * std::sqrt(p * (1 - p) / static_cast<double>(of)))
      << count << " of " << of;
}

TEST_F(MaskedTokens, AreChosenAndReplacedAsInBert) {
  const OpenedData opened = open();
  int64_t places = 0, chosen = 0, hidden = 0, kept = 0;
  for (int64_t epoch = 0; epoch < 20; ++epoch)
    for (const Sample& sample : epoch_of(*opened.train, epoch))
      for (size_t t = 0; t < kContext; ++t) {
        const int32_t token = sample.input[t], target = sample.target[t];
        EXPECT_EQ(sample.input[kContext + t], 0);
        EXPECT_EQ(sample.input[2 * kContext + t], static_cast<int32_t>(t));
        EXPECT_EQ(sample.input[3 * kContext + t], 0);
        if (target < 0) {
          places += token != kSep ? 1 : 0;
          EXPECT_NE(token, kMask);
          continue;
        }
        EXPECT_GE(target, 5);
        ++places;
        ++chosen;
        hidden += token == kMask ? 1 : 0;
        kept += token == target ? 1 : 0;
      }
  ASSERT_GT(places, 50000);
  expect_share(chosen, places, 0.15);
  // A random token of 15 is the mask or the token itself once in 15.
  expect_share(hidden, chosen, 0.8 + 0.1 / 15);
  expect_share(kept, chosen, 0.1 + 0.1 / 15);
}

TEST_F(MaskedTokens, WhatIsNotChosenIsTheStream) {
  data_.shuffle = false;
  const OpenedData opened = open();
  ASSERT_EQ(opened.train->samples(), static_cast<int64_t>(stream_.tokens.size()) / kContext);
  const auto samples = epoch_of(*opened.train, 3);
  for (size_t i = 0; i < samples.size(); ++i)
    for (size_t t = 0; t < kContext; ++t) {
      const int32_t target = samples[i].target[t];
      EXPECT_EQ(target < 0 ? samples[i].input[t] : target, stream_.tokens[i * kContext + t]);
    }
}

TEST_F(MaskedTokens, ArePureFunctions) {
  const OpenedData one = open(), same = open(), other = open(TokensConfig::Packing::kNone, 2);
  const auto most = static_cast<size_t>(one.train->samples()) - 2;
  EXPECT_EQ(differing(epoch_of(*one.train, 3), epoch_of(*same.train, 3)), 0u);
  EXPECT_GT(differing(epoch_of(*one.train, 3), epoch_of(*one.train, 4)), most);
  EXPECT_GT(differing(epoch_of(*one.train, 3), epoch_of(*other.train, 3)), most);
  EXPECT_EQ(differing(epoch_of(*one.eval, 0, false), epoch_of(*other.eval, 0, false)), 0u);
}

// Documents keep their last token, which predicts none here; every sample has a target, but those
// of [SEP] alone.
TEST_F(MaskedTokens, OfDocuments) {
  for (const auto packing : {TokensConfig::Packing::kPadded, TokensConfig::Packing::kBestFit}) {
    const OpenedData opened = open(packing);
    std::vector<int32_t> found;
    for (int64_t i = 0; i < opened.train->samples(); ++i) {
      const auto sample = test::read<int32_t, int32_t>(*opened.train, {i, 5, true});
      int64_t length = 0;
      bool may = false;
      for (size_t t = 0; t < kContext; ++t) {
        const int32_t target = sample.target[t];
        if (sample.input[kContext + t] < 0) {
          EXPECT_EQ(target, -1);
          continue;
        }
        ++length;
        found.push_back(target < 0 ? sample.input[t] : target);
        may = may || found.back() != kSep;
      }
      EXPECT_EQ(opened.train->length(i), length);
      EXPECT_EQ(may, std::any_of(sample.target.begin(), sample.target.end(), [](int32_t target) {
                  return target >= 0;
                }));
    }
    std::vector<int32_t> wanted(stream_.tokens.begin(), stream_.tokens.end());
    std::ranges::sort(found);
    std::ranges::sort(wanted);
    EXPECT_EQ(found, wanted);
  }
}

TEST_F(MaskedTokens, VocabularyIsTheTokenizers) {
  EXPECT_EQ(open().summary.classes, 15);
  stream_.tokens[7] = 15;
  config_.train = folder_.write("tokens", bytes_of(stream_.tokens));
  expect_parts(error_of([&] { open(); }), {"token 7 is 15", "15"});
}

TEST_F(MaskedTokens, RefusesWhatCannotBe) {
  config_.tokenizer =
      folder_.write("none.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\n");
  expect_parts(error_of([&] { open(); }, ExitCode::kUsage), {"tokenizer", "[MASK]"});
  config_.tokenizer = "";
  expect_parts(error_of([&] { open(); }, ExitCode::kUsage), {"data.tokens.tokenizer", "''"});
  TextConfig texts;
  texts.train = config_.train;
  data_.source = texts;
  expect_parts(
      error_of([&] { open_data(data_, encoder(config::TextTask::kMaskedTokens, 8), 1, true); },
               ExitCode::kUsage),
      {"data.text", "data.tokens"});
  config_.tokenizer = "vocab.txt";
  data_.source = config_;
  expect_parts(error_of([&] { open_data(data_, test::gpt(8), 1, true); }, ExitCode::kUsage),
               {"data.tokens.tokenizer", "masked tokens"});
}

}  // namespace
}  // namespace lockstep::data
