// Catches wrong sample borders, targets that are not the next token, shifts that run past the end
// or depend on more than (seed, epoch), and token files that lie.

#include "runtime/data/text/sequence.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "files.h"
#include "runtime/data/text/token_file.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;
using test::gpt;

using TokenSample = test::Sample<int32_t, int32_t>;

TokenSample read(const Dataset& dataset, SampleKey key) {
  return test::read<int32_t, int32_t>(dataset, key);
}

// Text whose byte i is i modulo 251, so that a sample shows where it was taken.
std::string counting_text(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i % 251);
  return text;
}

void expect_counting(const TokenSample& sample, int64_t first) {
  for (size_t t = 0; t < sample.input.size(); ++t) {
    ASSERT_EQ(sample.input[t], (first + static_cast<int64_t>(t)) % 251);
    ASSERT_EQ(sample.target[t], (first + static_cast<int64_t>(t) + 1) % 251);
  }
}

DataConfig text_config(const test::TemporaryFolder& folder,
                       const std::string& train,
                       float eval_fraction = 0) {
  TextConfig text;
  text.train = train;
  text.eval_fraction = eval_fraction;
  DataConfig config;
  config.source = text;
  config.dir = folder.path();
  return config;
}

TEST(TokenFile, TokensThatAreWiderThanTheFormatAreReported) {
  const auto file = [](int token_bytes, uint64_t low, uint64_t high) {
    std::string bytes;
    for (uint64_t i = 0; i < 64; ++i) {
      const uint64_t token = low + i % (high - low);
      bytes.append(reinterpret_cast<const char*>(&token), static_cast<size_t>(token_bytes));
    }
    return bytes;
  };
  using Format = TokensConfig::Format;
  const auto warning = [](const std::string& bytes, Format format) {
    return describe_narrow_tokens(parse_tokens(test::bytes_of(bytes), format, "f"), "f");
  };
  expect_parts(
      warning(file(4, 10, 200), Format::kRawUint16),
      {"f: every second token is near 0", "32 bits", "set data.tokens.format to RAW_UINT32"});
  expect_parts(warning(file(4, 65500, 65600), Format::kRawUint16), {"RAW_UINT32"});
  expect_parts(warning(file(8, 10, 200), Format::kRawUint32), {"64 bits", "uint32"});
  EXPECT_EQ(warning(file(2, 10, 200), Format::kRawUint16), "");
  EXPECT_EQ(warning(file(4, 10, 200), Format::kRawUint32), "");
  EXPECT_EQ(warning(file(2, 0, 4), Format::kRawUint16), "");  // a small alphabet, such as DNA's
}

TEST(Text, CutsSamplesThatShareTheirBorders) {
  test::TemporaryFolder folder;
  DataConfig config = text_config(folder, folder.write("t", counting_text(1000)));
  config.shuffle = false;
  const OpenedData opened = open_data(config, gpt(37), 1, true);
  ASSERT_EQ(opened.train->samples(), 999 / 37);
  EXPECT_EQ(opened.summary.classes, 256);
  for (int64_t i = 0; i < opened.train->samples(); ++i)
    expect_counting(read(*opened.train, {.index = i, .epoch = 4, .augment = true}), i * 37);
  EXPECT_EQ(opened.eval, nullptr);
}

TEST(Text, WarnsOfTokensThatAreAllTheSame) {
  test::TemporaryFolder folder;
  DataConfig config = text_config(folder, folder.write("t", std::string(1000, 'a')));
  config.shuffle = false;
  const OpenedData opened = open_data(config, gpt(37), 1, true);
  ASSERT_EQ(opened.summary.warnings.size(), 1u);
  test::expect_parts(opened.summary.warnings[0],
                     {"data.text: every token to predict in all 27 training samples is 97"});
  config = text_config(folder, folder.write("t", std::string(999, 'a') + "b"));
  config.shuffle = false;
  EXPECT_TRUE(open_data(config, gpt(37), 1, true).summary.warnings.empty());
}

TEST(Text, ShiftsByEpochWhenShuffled) {
  test::TemporaryFolder folder;
  DataConfig config = text_config(folder, folder.write("t", counting_text(250)));
  const OpenedData opened = open_data(config, gpt(16), 7, true);
  const OpenedData other = open_data(config, gpt(16), 8, true);
  const int64_t last = opened.train->samples() - 1;
  ASSERT_EQ(last + 1, (250 - 16) / 16);
  std::set<int32_t> shifts;
  int same_with_other_seed = 0;
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    const TokenSample first = read(*opened.train, {.index = 0, .epoch = epoch, .augment = true});
    const int32_t shift = first.input[0];
    ASSERT_LT(shift, 16);
    shifts.insert(shift);
    expect_counting(first, shift);
    expect_counting(read(*opened.train, {.index = last, .epoch = epoch, .augment = true}),
                    last * 16 + shift);
    same_with_other_seed +=
        read(*other.train, {.index = 0, .epoch = epoch, .augment = true}).input[0] == shift;
  }
  EXPECT_EQ(shifts.size(), 16u);
  EXPECT_LT(same_with_other_seed, 40);  // 12.5 expected of 200
  expect_counting(read(*opened.train, {.index = 2, .epoch = 5, .augment = false}), 32);
}

TEST(Text, ShiftsAsFarAsShortTextAllows) {
  test::TemporaryFolder folder;
  for (size_t bytes : {17, 18, 20, 31, 32, 33, 47, 48}) {
    const DataConfig config = text_config(folder, folder.write("t", counting_text(bytes)));
    const OpenedData opened = open_data(config, gpt(16), 7, true);
    int32_t most = 0;
    for (int64_t epoch = 0; epoch < 300; ++epoch) {
      const int64_t last = opened.train->samples() - 1;
      const TokenSample sample =
          read(*opened.train, {.index = last, .epoch = epoch, .augment = true});
      ASSERT_LT(sample.target[15], static_cast<int32_t>(bytes));
      most = std::max(most, sample.target[15]);
    }
    if (bytes < 32) {
      EXPECT_EQ(most, static_cast<int32_t>(bytes) - 1) << "not all of the text is used";
    }
  }
}

TEST(Text, HoldsOutItsEndForEvaluation) {
  test::TemporaryFolder folder;
  const DataConfig config =
      text_config(folder, folder.write("t.gz", test::gzip(counting_text(1000))), 0.25f);
  const OpenedData opened = open_data(config, gpt(10), 1, true);
  EXPECT_EQ(opened.train->samples(), (750 - 10) / 10);
  EXPECT_EQ(opened.eval->samples(), 249 / 10);
  expect_counting(read(*opened.eval, {.index = 0}), 750);
  EXPECT_EQ(opened.train->resident_bytes() + opened.eval->resident_bytes(), 1000);
  const OpenedData only_eval = open_data(config, gpt(10), 1, false);
  EXPECT_EQ(only_eval.train, nullptr);
  expect_counting(read(*only_eval.eval, {.index = 3}), 780);
}

TEST(Text, RefusesTooLittleAndTooFewTokens) {
  test::TemporaryFolder folder;
  DataConfig config = text_config(folder, folder.write("short", "only 19 bytes here\n"));
  expect_parts(error_of([&] { open_data(config, gpt(19), 1, true); }),
               {"short", "19 tokens", "context + 1 = 20"});
  expect_parts(error_of([&] { open_data(config, gpt(4, 100), 1, true); }, ExitCode::kUsage),
               {"model.gpt.vocabulary: value is 100", "at least 256"});
  std::get<TextConfig>(config.source).eval = "absent";
  expect_parts(error_of([&] { open_data(config, gpt(4), 1, true); }), {"data.text.eval", "absent"});
  expect_parts(error_of([&] { open_data(config, test::mlp(), 1, true); }, ExitCode::kUsage),
               {"value is data.text", "data.table", "with model.mlp"});
}

std::string tokens_of(const std::vector<uint16_t>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(uint16_t)};
}

std::string llmc(const std::vector<uint16_t>& ids,
                 int32_t count,
                 int32_t magic = 20240520,
                 int32_t version = 1) {
  int32_t header[256] = {magic, version, count};
  return std::string(reinterpret_cast<const char*>(header), sizeof(header)) + tokens_of(ids);
}

class Tokens : public ::testing::TestWithParam<TokensConfig::Format> {
 protected:
  std::string file_of(const std::vector<uint16_t>& ids) {
    if (GetParam() == TokensConfig::Format::kLlmc)
      return llmc(ids, static_cast<int32_t>(ids.size()));
    if (GetParam() == TokensConfig::Format::kRawUint16) return tokens_of(ids);
    const std::vector<uint32_t> wide(ids.begin(), ids.end());
    return {reinterpret_cast<const char*>(wide.data()), wide.size() * sizeof(uint32_t)};
  }
};

TEST_P(Tokens, ReadsAllFormats) {
  // The first token of a raw file looks like the beginning of a gzip file.
  std::vector<uint16_t> ids = {0x8b1f, 50256, 3, 4, 65535, 0, 7, 8, 9};
  test::TemporaryFolder folder;
  DataConfig config;
  config.dir = folder.path();
  config.shuffle = false;
  TokensConfig tokens;
  tokens.train = folder.write("train.bin", file_of(ids));
  tokens.eval = folder.write("eval.bin", file_of({1, 2, 3, 4, 5}));
  tokens.format = GetParam();
  config.source = tokens;
  const OpenedData opened = open_data(config, gpt(4), 1, true);
  EXPECT_EQ(opened.train->samples(), 2);
  EXPECT_EQ(opened.summary.classes, 65536);
  EXPECT_EQ(read(*opened.train, {.index = 0}).input, (std::vector<int32_t>{0x8b1f, 50256, 3, 4}));
  EXPECT_EQ(read(*opened.train, {.index = 0}).target, (std::vector<int32_t>{50256, 3, 4, 65535}));
  EXPECT_EQ(read(*opened.train, {.index = 1}).target, (std::vector<int32_t>{0, 7, 8, 9}));
  EXPECT_EQ(read(*opened.eval, {.index = 0}).target, (std::vector<int32_t>{2, 3, 4, 5}));
}

TEST_P(Tokens, ChecksEveryIdAgainstTheVocabulary) {
  std::vector<uint16_t> ids(200'000, 17);
  ids[131'077] = 300;
  test::TemporaryFolder folder;
  DataConfig config;
  config.dir = folder.path();
  TokensConfig tokens;
  tokens.train = folder.write("t.bin", file_of(ids));
  tokens.format = GetParam();
  config.source = tokens;
  EXPECT_EQ(open_data(config, gpt(8), 1, true).summary.classes, 301);
  EXPECT_EQ(open_data(config, gpt(8, 301), 1, true).summary.classes, 301);
  expect_parts(error_of([&] { open_data(config, gpt(8, 300), 1, true); }),
               {"t.bin", "token 131077 is 300", "vocabulary of 300"});
  tokens.eval = folder.write("e.bin", file_of({1, 2, 301, 4, 5, 6, 7, 8, 9}));
  config.source = tokens;
  expect_parts(error_of([&] { open_data(config, gpt(8), 1, true); }), {"e.bin", "token 2 is 301"});
  EXPECT_EQ(open_data(config, gpt(8, 400), 1, false).eval->samples(), 1);
}

INSTANTIATE_TEST_SUITE_P(Formats,
                         Tokens,
                         ::testing::Values(TokensConfig::Format::kRawUint16,
                                           TokensConfig::Format::kLlmc,
                                           TokensConfig::Format::kRawUint32));

TEST(TokensFile, HasTokensOf32Bits) {
  const std::vector<uint32_t> ids = {7, 128'000, 65'536, 2'147'483'646, 5};
  const auto file = [](const std::vector<uint32_t>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  };
  test::TemporaryFolder folder;
  DataConfig config;
  config.dir = folder.path();
  config.shuffle = false;
  TokensConfig tokens;
  tokens.train = folder.write("t.bin", file(ids));
  tokens.format = TokensConfig::Format::kRawUint32;
  config.source = tokens;
  const OpenedData opened = open_data(config, gpt(4), 1, true);
  EXPECT_EQ(opened.summary.classes, 2'147'483'647);
  EXPECT_EQ(read(*opened.train, {.index = 0}).target,
            (std::vector<int32_t>{128'000, 65'536, 2'147'483'646, 5}));
  expect_parts(error_of([&] { open_data(config, gpt(4, 128'000), 1, true); }),
               {"t.bin", "token 1 is 128000", "vocabulary of 128000"});
  folder.write("t.bin", file({1, 2, 3, 4, 4'294'967'295}));
  expect_parts(error_of([&] { open_data(config, gpt(4), 1, true); }),
               {"has a token 4294967295", "allowed: 0..2147483646", "tokens.format"});
  expect_parts(error_of([&] { open_data(config, gpt(4, 300), 1, true); }),
               {"token 4 is 4294967295", "vocabulary of 300"});
}

TEST(TokensFile, RefusesCorruptFiles) {
  const auto llmc_error = [](const std::string& bytes) {
    return error_of([&] { parse_tokens(test::bytes_of(bytes), TokensConfig::Format::kLlmc, "f"); });
  };
  const auto raw_error = [](const std::string& bytes) {
    return error_of(
        [&] { parse_tokens(test::bytes_of(bytes), TokensConfig::Format::kRawUint16, "f"); });
  };
  expect_parts(raw_error("abc"), {"f: has 3 bytes", "a multiple of 2"});
  expect_parts(raw_error(""), {"has no tokens"});
  expect_parts(error_of([&] {
                 parse_tokens(test::bytes_of("abcdef"), TokensConfig::Format::kRawUint32, "f");
               }),
               {"f: has 6 bytes", "32-bit tokens", "a multiple of 4"});
  expect_parts(llmc_error("abc"), {"3 bytes are too few", "1024"});
  expect_parts(llmc_error("<!DOCTYPE html><html>"), {"is a web page (HTML)"});
  expect_parts(llmc_error(llmc({1, 2}, 1, 20240328)), {"with a tokenizer", "20240328"});
  expect_parts(llmc_error(llmc({1, 2}, 1, 20240801, 1)), {"version 1", "Llama 3", "allowed: 7"});
  expect_parts(llmc_error(llmc({1, 2}, 2, 20240801, 7)), {"truncated", "2 tokens of 4 bytes"});
  expect_parts(llmc_error(llmc({1, 2}, 2, 20240519)), {"begins with 20240519", "20240520"});
  expect_parts(llmc_error(llmc({1, 2}, 2, 20240520, 2)), {"version 2", "allowed: 1"});
  expect_parts(llmc_error(llmc({1, 2}, 3)), {"truncated", "promises 3 tokens", "4 bytes"});
  expect_parts(llmc_error(llmc({1, 2}, 1)), {"too long", "promises 1 tokens"});
  expect_parts(llmc_error(llmc({1, 2}, -1)), {"truncated", "4294967295"});
  expect_parts(llmc_error(llmc({}, 0)), {"has no tokens"});
}

// llm.c writes the tokens of Llama 3 with 32 bits.
TEST(TokensFile, LlmcHasTokensOf32BitsForLlama3) {
  const std::vector<uint32_t> ids = {128'000, 128'001, 5, 70'000};
  const std::string file =
      llmc({}, 4, 20240801, 7) + std::string(reinterpret_cast<const char*>(ids.data()), 16);
  const TokenSequence tokens = parse_tokens(test::bytes_of(file), TokensConfig::Format::kLlmc, "f");
  ASSERT_EQ(tokens.count(), 4);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(tokens[i], ids[static_cast<size_t>(i)]);
  for (const auto format : {TokensConfig::Format::kRawUint32, TokensConfig::Format::kRawUint16})
    expect_parts(error_of([&] { parse_tokens(test::bytes_of(file), format, "f"); }),
                 {"llm.c's tokens for Llama 3", "data.tokens.format to LLMC"});
}

// Such files were read as tokens.
TEST(TokensFile, RawTokensAreNoOtherFormat) {
  const auto error = [](const std::string& bytes, const std::string& name = "f") {
    return error_of(
        [&] { parse_tokens(test::bytes_of(bytes), TokensConfig::Format::kRawUint16, name); });
  };
  expect_parts(error("\x93NUMPY" + std::string(100, '\1')), {"is a NumPy array"});
  expect_parts(error("It was the best of times, it was the worst of times,"),
               {"is text that begins with 'It was", "data tokenize"});
  expect_parts(error(test::gzip(tokens_of({1, 2, 3})) + "x", "f.gz"), {"gzip-compressed"});
  // Tokens that look like the beginning of an icon, a pickle, UTF-16 and a bitmap.
  for (const std::vector<uint16_t>& ids : {std::vector<uint16_t>{0, 1, 2},
                                           {0x0280, 5},
                                           {0xFEFF, 5},
                                           {0x4D42, 5, 6, 0, 0, 0},
                                           {0x8b1f, 5}})
    EXPECT_EQ(error(tokens_of(ids)), "no error");
}

}  // namespace
}  // namespace lockstep::data
