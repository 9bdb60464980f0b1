// Catches files whose rules make more of a text, in memory or in time, than a machine has: each of
// those here would need years or terabytes. Catches limits that refuse what real tokenizers do.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "runtime/base/json.h"
#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/unicode.h"
#include "tokenizer_checks.h"

namespace lockstep::test {
namespace {

std::string quoted(const std::string& text) { return Json(text).dump(); }

std::string times(int count, const std::string& text, const std::string& between = "") {
  std::string all;
  for (int i = 0; i < count; ++i) all += (i > 0 ? between : "") + text;
  return all;
}

std::string replace(const std::string& from, const std::string& to) {
  return R"({"type":"Replace","pattern":{"String":)" + quoted(from) + R"(},"content":)" +
         quoted(to) + "}";
}

std::string sequence(const std::string& steps, const std::string& of = "normalizers") {
  return R"({"type":"Sequence",")" + of + R"(":[)" + steps + "]}";
}

constexpr char kWords[] =
    R"({"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"##",)"
    R"("max_input_chars_per_word":2000000000,"vocab":{"?":0,"hhhh":1,"##hhhh":2}})";

// A tokenizer.json with these members.
std::string file(const std::string& members, const std::string& model = kWords) {
  return "{" + members + (members.empty() ? "" : ",") + R"("model":)" + model + "}";
}

std::string error_of(const std::string& json, const std::string& text) {
  return data_error_of([&] { ids_of(json, text, true); });
}

const std::string kDocument(10000, 'h');
const std::string kDoubled = times(40, replace("h", "hh"), ",");

TEST(Growth, NormalizersThatDouble) {
  EXPECT_EQ(error_of(file(R"("normalizer":)" + sequence(kDoubled)), kDocument),
            "t.json: normalizer.normalizers[7] (Replace) makes more than 1688576 bytes of 10000 "
            "bytes; allowed: 64 for each and 1048576 more");
}

TEST(Growth, NormalizersThatWriteMuch) {
  const std::string megabyte(1 << 20, 'x');
  for (const std::string& step :
       {replace("h", megabyte),
        R"({"type":"Replace","pattern":{"Regex":"\\s+"},"content":")" + megabyte + R"("})",
        sequence(times(3, R"({"type":"Prepend","prepend":")" + megabyte + R"("})", ","))})
    EXPECT_NE(error_of(file(R"("normalizer":)" + step), "h h h").find("makes more than 1048896"),
              std::string::npos)
        << step.substr(0, 60);
}

// SentencePiece's table with one rule: h becomes `to`.
std::string charsmap(const std::string& to) {
  std::vector<uint32_t> units(512);
  units[0] = 256 << 10;
  units[256 ^ 'h'] = 'h' | 0x100 | (256 ^ 'h' ^ 1) << 10;
  const auto bytes = static_cast<uint32_t>(units.size() * sizeof(uint32_t));
  std::string table(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  table.append(reinterpret_cast<const char*>(units.data()), bytes);
  return table + to + '\0';
}

std::string base64(const std::string& bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : bytes + std::string(2, '\0')) {
    bits = bits << 8 | static_cast<uint8_t>(c);
    for (held += 8; held >= 6; held -= 6) text += kDigits[bits >> (held - 6) & 63];
  }
  return text;
}

TEST(Growth, TablesOfCharacters) {
  const auto with = [](const std::string& to) {
    return file(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":")" +
                base64(charsmap(to)) + R"("})");
  };
  EXPECT_EQ(ids_of(with("hhhh"), "hh"), (std::vector<uint32_t>{1, 2}));
  EXPECT_NE(error_of(with(std::string(1 << 20, 'x')), kDocument)
                .find("t.json: normalizer (Precompiled) makes more than 1688576 bytes"),
            std::string::npos);
}

TEST(Growth, PreTokenizersThatWriteCharactersForBytes) {
  const std::string step = R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":false})";
  EXPECT_NE(
      error_of(file(R"("pre_tokenizer":)" + sequence(times(40, step, ","), "pretokenizers")), "é")
          .find("(ByteLevel) makes more than 1048704 bytes of 2 bytes"),
      std::string::npos);
}

TEST(Growth, AddedTokensThatAreNormalized) {
  const std::string token = R"({"id":7,"content":"h","normalized":true})";
  EXPECT_NE(data_error_of([&] {
              tokenizer::parse_tokenizer_json(
                  file(R"("added_tokens":[)" + token + R"(],"normalizer":)" + sequence(kDoubled)),
                  "t.json");
            }).find("(Replace) makes more than 1048640 bytes of 1 byte;"),
            std::string::npos);
  // Each by itself would do.
  const std::string tokens = times(3, R"({"content":"h%"})", ",");
  std::string three = tokens;
  for (const char digit : {'1', '2', '3'}) three[three.find('%')] = digit;
  EXPECT_NE(data_error_of([&] {
              tokenizer::parse_tokenizer_json(
                  file(R"("added_tokens":[)" + three + R"(],"normalizer":)" +
                       replace("h", std::string(400000, 'x'))),
                  "t.json");
            }).find("t.json: added_tokens makes more than 1048960 bytes of 6 bytes"),
            std::string::npos);
}

std::string post_processor(int tokens, int parts) {
  return R"({"type":"TemplateProcessing","special_tokens":{"s":{"ids":[)" +
         times(tokens, "0", ",") + R"(]}},"single":[{"Sequence":{"id":"A"}},)" +
         times(parts, R"({"SpecialToken":{"id":"s"}})", ",") + "]}";
}

TEST(Growth, TemplatesWithManyTokens) {
  const auto read = [](const std::string& processor) {
    return data_error_of([&] {
      tokenizer::parse_tokenizer_json(file(R"("post_processor":)" + processor), "t.json");
    });
  };
  EXPECT_EQ(read(post_processor(1024, 4)), "no error");
  const std::string wanted =
      "t.json: post_processor.single: has more than 4096 special tokens around a text; allowed: up "
      "to 4096";
  EXPECT_EQ(read(post_processor(1000, 2000)), wanted);
  EXPECT_EQ(read(post_processor(1, 5000)), wanted);
}

TEST(Growth, Decoders) {
  const auto decoded = [](const std::string& json, size_t ids, uint32_t id) {
    return data_error_of([&] {
      const auto tokenizer = tokenizer::parse_tokenizer_json(json, "t.json");
      tokenizer->decode(std::vector<uint32_t>(ids, id), false);
    });
  };
  const std::string with_decoder = file(R"("decoder":)" + sequence(kDoubled, "decoders"));
  EXPECT_EQ(decoded(with_decoder, 10000, 1),
            "t.json: decoder.decoders[8] (Replace) makes more than 11288576 bytes of 10000 ids; "
            "allowed: 1024 for each and 1048576 more");
  const std::string long_token =
      R"({"type":"BPE","merges":[],"vocab":{")" + std::string(100000, 'x') + R"(":0}})";
  EXPECT_NE(decoded(file("", long_token), 10000, 0)
                .find("t.json: model (BPE) makes more than 11288576 bytes of 10000 ids"),
            std::string::npos);
}

// A token that a text misses by its last character, again at each character.
TEST(Growth, TokensThatAreAlmostThere) {
  const std::string text(20000, 'a'), token = text + "b";
  const std::string unigram =
      R"({"type":"Unigram","unk_id":0,"vocab":[["?",0],["a",-1],[")" + token + R"(",-1]]})";
  const std::string words = R"({"type":"WordPiece","unk_token":"?",)"
                            R"("continuing_subword_prefix":"","max_input_chars_per_word":50000,)"
                            R"("vocab":{"?":0,"a":1,")" +
                            token + R"(":2}})";
  const std::string added = R"("added_tokens":[{"content":")" + token + R"("}])";
  const std::string steps =
      " takes more than 37257216 steps for 20000 bytes; allowed: 1024 for "
      "each and 16777216 more";
  EXPECT_EQ(error_of(file("", unigram), text), "t.json: model (Unigram)" + steps);
  EXPECT_EQ(error_of(file("", words), text), "t.json: model (WordPiece)" + steps);
  EXPECT_EQ(error_of(file(added), text), "t.json: added_tokens" + steps);
}

TEST(Growth, AddedTokensThatTakeSpaces) {
  const auto of_space = [](const std::string& side) {
    return file(R"("added_tokens":[{"id":7,"content":" ",")" + side + R"(":true}])");
  };
  const std::string spaces(20000, ' ');
  EXPECT_EQ(ids_of(of_space("lstrip"), spaces).size(), spaces.size());
  EXPECT_NE(error_of(of_space("rstrip"), spaces).find("added_tokens takes more than"),
            std::string::npos);
}

TEST(Growth, PatternsAreSoughtInLinearTime) {
  const std::string text(1 << 20, 'a'), pattern = std::string(1 << 19, 'a') + "b";
  const std::string split = R"("pre_tokenizer":{"type":"Split","behavior":"Isolated",)"
                            R"("pattern":{"String":")" +
                            pattern + R"("}})";
  EXPECT_EQ(error_of(file(R"("normalizer":)" + replace(pattern, "x")), text), "no error");
  EXPECT_EQ(error_of(file(split), text), "no error");
}

TEST(Growth, MarksThatAreSorted) {
  const std::string marks = times(20, "\u0301\u0323");
  const auto with = [&](const std::string& form) {
    return file(R"("normalizer":)" +
                sequence(replace("h", marks) + R"(,{"type":")" + form + R"("})"));
  };
  for (const char* form : {"NFC", "NFD", "NFKC", "NFKD"}) {
    EXPECT_EQ(error_of(with(form), "h, h, h"), "no error");
    EXPECT_NE(error_of(with(form), kDocument).find("takes more than 27017216 steps"),
              std::string::npos)
        << form;
  }
}

TEST(Growth, PrefixesOfSubwords) {
  const std::string model = R"({"type":"BPE","merges":[],"byte_fallback":true,)"
                            R"("continuing_subword_prefix":")" +
                            std::string(100000, 'x') + R"(","vocab":{"<0x78>":0,"<0x68>":1}})";
  EXPECT_EQ(ids_of(file("", model), "hh").size(), 100002u);
  EXPECT_NE(error_of(file("", model), kDocument).find("t.json: model (BPE) "), std::string::npos);
}

// Pieces go through pre-tokenizers within each other: so many would use up the stack.
TEST(Growth, StepsBeyondCount) {
  const struct {
    const char* name;
    std::string json;
  } kSequences[] = {
      {"normalizer.normalizers", sequence(times(1001, R"({"type":"Lowercase"})", ","))},
      {"pre_tokenizer.pretokenizers",
       sequence(times(1001, R"({"type":"WhitespaceSplit"})", ","), "pretokenizers")},
      {"decoder.decoders", sequence(times(1001, R"({"type":"Fuse"})", ","), "decoders")}};
  for (const auto& [name, json] : kSequences) {
    const std::string member(name, std::string(name).find('.'));
    EXPECT_EQ(error_of(file("\"" + member + "\":" + json), "h"),
              "t.json: " + std::string(name) + "[1000]: is step 1001; allowed: up to 1000");
  }
}

// What a normal form or a tokenizer in use makes at most of a text.
TEST(Growth, RealGrowthIsAllowed) {
  tokenizer::GrowthLimit limit = tokenizer::GrowthLimit::of_text(3);
  const Json nfkc = Json::parse(R"({"type":"NFKC"})");
  EXPECT_EQ(
      tokenizer::Normalizer(tokenizer::JsonNode(nfkc, "t.json")).apply("\uFDFA", limit).size(),
      33u);
  const std::string text = times(100000, "\uFDFA");
  const std::string whole =
      R"("normalizer":)" +
      sequence(R"({"type":"NFKC"},{"type":"Prepend","prepend":"▁"},)" + replace(" ", "▁")) +
      R"(,"pre_tokenizer":)" +
      sequence(R"({"type":"Metaspace","replacement":"▁"},)"
               R"({"type":"ByteLevel","add_prefix_space":true})",
               "pretokenizers");
  EXPECT_EQ(error_of(file(whole), text), "no error");
  EXPECT_EQ(error_of(file(R"("normalizer":)" + replace("h", std::string(64, 'x'))),
                     std::string(100000, 'h')),
            "no error");
}

}  // namespace
}  // namespace lockstep::test
