// Catches pre-tokenizers that cut a text elsewhere than the `tokenizers` package: all pieces wanted
// here are what version 0.23 of it gives.

#include <gtest/gtest.h>

#include "runtime/tokenizer/pre_tokenizer.h"
#include "runtime/tokenizer/split_rules.h"
#include "tokenizer_checks.h"

namespace lockstep::tokenizer {
namespace {

constexpr char kLlama3[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|)"
    R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";
constexpr char kQwen2[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|)"
                          R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";

class Joined final : public PieceSink {
 public:
  void take(TextPiece piece) override {
    EXPECT_FALSE(piece.text.empty());
    text += (text.empty() ? "" : "|") + std::string(piece.text);
  }
  std::string text;
};

// The pieces with | between them.
std::string pieces(const std::string& json, const std::string& text) {
  const Json value = Json::parse(json);
  const PreTokenizer splitter(JsonNode(value, "t.json"), /*bytes_wanted=*/true);
  Joined joined;
  GrowthLimit limit = GrowthLimit::of_text(text.size());
  PreTokenizer::Run run(splitter, joined);
  run.begin(&limit);
  run.split({text, true});
  return joined.text;
}

std::string by_regex(const std::string& regex, const std::string& text) {
  return pieces(R"({"type":"Split","behavior":"Isolated","pattern":{"Regex":")" + regex + R"("}})",
                text);
}

const std::string kText = "I'LL go  to\tB2B4567 (now)!!\n\n  it's 'ſo\u00a0x \r\n y  ";

TEST(SplitRules, Gpt2) {
  const std::string wanted =
      "I|'|LL| go| | to|\t|B|2|B|4567| (|now|)!!|\n\n | it|'s| '|ſo|\u00a0|x| \r\n| y|  ";
  EXPECT_EQ(pieces(R"({"type":"ByteLevel","add_prefix_space":false})", kText), wanted);
  EXPECT_EQ(pieces(R"({"type":"ByteLevel","add_prefix_space":true})", kText), " " + wanted);
}

TEST(SplitRules, Llama3) {
  EXPECT_EQ(by_regex(kLlama3, kText),
            "I|'LL| go| | to|\tB|2|B|456|7| (|now|)!!\n\n| | it|'s| '|ſo|\u00a0x| \r\n| y|  ");
  EXPECT_EQ(by_regex(kLlama3, "x'ſa"), "x|'ſ|a");  // an s, whatever the case
  EXPECT_EQ(by_regex(kLlama3, " \n \n\t z"), " \n \n|\t| z");
}

// In tiktoken's cl100k_base white space at the end of a text is one word; the rest is Llama 3's.
TEST(SplitRules, Cl100k) {
  const auto pieces_of = [](const std::string& text) {
    Joined joined;
    split_rule_of(cl100k_regex())({text, true}, joined);
    return joined.text;
  };
  EXPECT_EQ(pieces_of(kText), by_regex(kLlama3, kText));
  EXPECT_EQ(pieces_of("a\n  "), "a|\n  ");
  EXPECT_EQ(by_regex(kLlama3, "a\n  "), "a|\n|  ");
  EXPECT_EQ(pieces_of("a\n  b \n"), "a|\n| | b| \n");
}

TEST(SplitRules, Qwen2) {
  EXPECT_EQ(by_regex(kQwen2, kText),
            "I|'LL| go| | to|\tB|2|B|4|5|6|7| (|now|)!!\n\n| | it|'s| '|ſo|\u00a0x| \r\n| y|  ");
}

TEST(SplitRules, WordsByCase) {
  const std::string upper = R"([\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])";
  const std::string lower = R"([\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])";
  const std::string contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
  const auto regex = [&](const std::string& after, const std::string& numbers) {
    return R"([^\\r\\n\\p{L}\\p{N}]?)" + upper + "*" + lower + "+" + after +
           R"(|[^\\r\\n\\p{L}\\p{N}]?)" + upper + "+" + lower + "*" + after + "|" + numbers +
           R"(| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";
  };
  const std::string text = "camelCase HTTPServer I'LL don't AあB 1234 a/b //\n/x \u0301y";
  EXPECT_EQ(by_regex(regex(contraction, R"(\\p{N}{1,3})"), text),
            "camel|Case| HTTPServer| I'LL| don't| Aあ|B| |123|4| a|/b| //\n/|x| \u0301y");
  EXPECT_EQ(by_regex(regex("", R"(\\p{N})"), text),
            "camel|Case| HTTPServer| I|'LL| don|'t| Aあ|B| |1|2|3|4| a|/b| //\n/|x| \u0301y");
}

TEST(SplitRules, OthersAreRefused) {
  EXPECT_EQ(test::data_error_of([] { by_regex("a+", "a"); }),
            "t.json: pattern.Regex: value is \"a+\"; allowed: the regular expressions of GPT-2, "
            "cl100k (Llama 3), cl100k (tiktoken), Qwen2, o200k (GPT-4o, Llama 4), Tekken "
            "(Mistral)");
}

TEST(Split, MatchesAreTreatedAsAsked) {
  const auto split = [](const char* behavior, const char* invert) {
    return pieces(std::string(R"({"type":"Split","pattern":{"String":"-"},"behavior":")") +
                      behavior + R"(","invert":)" + invert + "}",
                  "--The-final--countdown-");
  };
  EXPECT_EQ(split("Removed", "false"), "The|final|countdown");
  EXPECT_EQ(split("Removed", "true"), "-|-|-|-|-|-");
  EXPECT_EQ(split("Isolated", "false"), "-|-|The|-|final|-|-|countdown|-");
  EXPECT_EQ(split("MergedWithPrevious", "false"), "-|-|The-|final-|-|countdown-");
  EXPECT_EQ(split("MergedWithPrevious", "true"), "-|-The|-final|-|-countdown|-");
  EXPECT_EQ(split("MergedWithNext", "false"), "-|-The|-final|-|-countdown|-");
  EXPECT_EQ(split("MergedWithNext", "true"), "-|-|The-|final-|-|countdown-");
  EXPECT_EQ(split("Contiguous", "false"), "--|The|-|final|--|countdown|-");
}

TEST(PreTokenizers, SplitByClasses) {
  EXPECT_EQ(pieces(R"({"type":"Whitespace"})", "a_b-c  d!? e\u0301²"), "a_b|-|c|d|!?|e\u0301|²");
  EXPECT_EQ(pieces(R"({"type":"BertPreTokenizer"})", "a_b-c  d!? é²"), "a|_|b|-|c|d|!|?|é²");
  EXPECT_EQ(pieces(R"({"type":"WhitespaceSplit"})", " a\u3000b  c"), "a|b|c");
  EXPECT_EQ(pieces(R"({"type":"Digits","individual_digits":false})", "ab12c3½"), "ab|12|c|3½");
  EXPECT_EQ(pieces(R"({"type":"Digits","individual_digits":true})", "ab12c3½"), "ab|1|2|c|3|½");
  EXPECT_EQ(pieces(R"({"type":"Punctuation"})", "a,,b"), "a|,|,|b");
  EXPECT_EQ(pieces(R"({"type":"Punctuation","behavior":"Contiguous"})", "a,,b"), "a|,,|b");
}

TEST(PreTokenizers, Metaspace) {
  const auto split = [](const char* scheme, const char* splits, const char* text) {
    return pieces(std::string(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":")") +
                      scheme + R"(","split":)" + splits + "}",
                  text);
  };
  EXPECT_EQ(split("always", "true", "a  b "), "▁a|▁|▁b|▁");
  EXPECT_EQ(split("always", "false", "a  b "), "▁a▁▁b▁");
  EXPECT_EQ(split("never", "true", "a  b "), "a|▁|▁b|▁");
  // Only the word with which the whole text begins.
  const auto words = [](const char* scheme) {
    return pieces(
        std::string(R"({"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},)") +
            R"({"type":"Metaspace","replacement":"▁","prepend_scheme":")" + scheme + "\"}]}",
        "a b");
  };
  EXPECT_EQ(words("first"), "▁a|b");
  EXPECT_EQ(words("always"), "▁a|▁b");
}

TEST(PreTokenizers, ByteLevelBeforeOthersWritesCharacters) {
  EXPECT_EQ(pieces(R"({"type":"Sequence","pretokenizers":[)"
                   R"({"type":"ByteLevel","add_prefix_space":false},)"
                   R"({"type":"Digits","individual_digits":true}]})",
                   "a é12"),
            "a|ĠÃ©|1|2");
}

}  // namespace
}  // namespace lockstep::tokenizer
