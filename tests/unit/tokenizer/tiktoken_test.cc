// Catches ids that differ from tiktoken's: merges in another order, words that are split although
// they are tokens, special tokens with other ids; and damaged or unknown files that are read.
#include "runtime/tokenizer/tiktoken.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace lockstep::tokenizer {
namespace {

using Ids = std::vector<uint32_t>;

std::string base64(const std::string& bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j)
      text += i + j > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * j) & 63];
  }
  return text;
}

// All bytes, then tokens of letters that occur often, as many as an encoding has. The first letters
// are few, so that a token can be merged in several ways.
std::vector<std::string> made_tokens(size_t count) {
  std::vector<std::string> tokens;
  std::set<std::string> seen;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  seen.insert(tokens.begin(), tokens.end());
  std::mt19937 random(1);
  while (tokens.size() < count) {
    // Two earlier tokens; the earliest ones, the letters a and b, most often.
    const auto pick = [&] {
      const size_t range = random() % 3 == 0 ? tokens.size() : std::min<size_t>(tokens.size(), 330);
      return random() % 2 == 0 ? std::string(1, "ab"[random() % 2]) : tokens[random() % range];
    };
    std::string token = pick() + pick();
    if (token.size() < 12 && seen.insert(token).second) tokens.push_back(std::move(token));
  }
  return tokens;
}

// As many, which no text of these tests has.
std::vector<std::string> many_tokens(size_t count) {
  std::vector<std::string> tokens = made_tokens(256);
  while (tokens.size() < count) tokens.push_back("#" + std::to_string(tokens.size()));
  return tokens;
}

std::string file_of(const std::vector<std::string>& tokens) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i)
    text += base64(tokens[i]) + " " + std::to_string(i) + "\n";
  return text;
}

// The definition: merge the neighbours that make the token of the lowest rank, the leftmost first.
Ids merged(const std::string& word, std::map<std::string, uint32_t>& ranks) {
  if (ranks.contains(word)) return {ranks[word]};
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  while (true) {
    size_t best = parts.size();
    uint32_t lowest = UINT32_MAX;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found == ranks.end() || found->second >= lowest) continue;
      lowest = found->second;
      best = i;
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(ranks[part]);
  return ids;
}

Ids ids_of(const Tokenizer& tokenizer, const std::string& text, bool with_special = false) {
  Ids ids;
  tokenizer.encoder()->encode(text, with_special, &ids);
  return ids;
}

std::string refusal(const std::string& text) {
  try {
    parse_tiktoken(text, "x.tiktoken");
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

constexpr size_t kGpt2 = 50256, kLlama3 = 128000;

TEST(Tiktoken, IdsAreThoseOfTheDefinition) {
  const std::vector<std::string> tokens = made_tokens(kGpt2);
  const auto tokenizer = parse_tiktoken(file_of(tokens), "r50k_base.tiktoken");
  std::map<std::string, uint32_t> ranks;
  for (size_t i = 0; i < tokens.size(); ++i) ranks[tokens[i]] = static_cast<uint32_t>(i);
  std::mt19937 random(2);
  for (int i = 0; i < 200; ++i) {
    std::string word;  // of letters alone, so that it is one word; some are long
    for (size_t n = 1 + random() % (i % 10 == 0 ? 90 : 12); n > 0; --n)
      word += "abababc"[random() % 7];
    EXPECT_EQ(ids_of(*tokenizer, word), merged(word, ranks)) << word;
  }
  EXPECT_EQ(ids_of(*tokenizer, "b<|endoftext|>a"), (Ids{'b', 50256, 'a'}));
  EXPECT_EQ(ids_of(*tokenizer, "b<|endoftext|>a", true), (Ids{'b', 50256, 'a'}));
  EXPECT_EQ(tokenizer->id_limit(), 50257u);
  EXPECT_TRUE(tokenizer->is_special(50256));
  EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, "It's \xC3\xA9 a\n b 12"), false),
            "It's \xC3\xA9 a\n b 12");
}

TEST(Tiktoken, Llama3BeginsTexts) {
  const auto tokenizer = parse_tiktoken(file_of(many_tokens(kLlama3)), "tokenizer.model");
  const Ids ids = ids_of(*tokenizer, "a<|eot_id|>", true);
  EXPECT_EQ(ids, (Ids{128000, 'a', 128009}));
  EXPECT_EQ(ids_of(*tokenizer, "a<|eot_id|>"), (Ids{'a', 128009}));
  EXPECT_EQ(tokenizer->id_of("<|reserved_special_token_247|>"), 128255u);
  EXPECT_EQ(tokenizer->id_limit(), 128256u);
}

// The ids of special tokens do not follow the ranks without a gap.
TEST(Tiktoken, SpecialTokensKeepTheirIds) {
  const auto tokenizer = parse_tiktoken(file_of(many_tokens(100256)), "cl100k_base.tiktoken");
  EXPECT_EQ(ids_of(*tokenizer, "a<|endoftext|><|endofprompt|>"), (Ids{'a', 100257, 100276}));
  EXPECT_EQ(tokenizer->id_limit(), 100277u);
}

TEST(Tiktoken, OtherFilesAreRefused) {
  std::vector<std::string> tokens = made_tokens(300);
  const std::string unknown = refusal(file_of(tokens));
  for (const char* part : {"x.tiktoken: has 300 ranks", "100256 (cl100k_base", "tokenizer.json"})
    EXPECT_NE(unknown.find(part), std::string::npos) << unknown;
  const std::string good = file_of(tokens);
  EXPECT_TRUE(is_tiktoken(good));
  EXPECT_FALSE(is_tiktoken("[PAD]\n[UNK]\n"));
  EXPECT_FALSE(is_tiktoken("{\"a\": 1}\n"));
  EXPECT_NE(refusal(good + "YQ==\n").find("x.tiktoken:301: the line is 'YQ=='"), std::string::npos);
  EXPECT_NE(refusal(good + "YQ== 300\n").find("301: the token occurs twice"), std::string::npos);
  tokens.erase(tokens.begin());
  EXPECT_NE(refusal(file_of(tokens)).find("has 255 tokens of one byte"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::tokenizer
