// Catches models that encode a word otherwise than the `tokenizers` package, long words that merge
// otherwise than short ones, a cache that gives a word another one's ids, and files that are wrong
// and are taken.

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tokenizer_checks.h"

namespace lockstep::tokenizer {
namespace {

using test::data_error_of;
using test::ids_of;
using Ids = std::vector<uint32_t>;

// Letters a to d; ranks: ab, cd, abcd, ba.
std::string bpe(const std::string& options, const std::string& others = "") {
  return R"({"model":{"type":"BPE",)" + options +
         R"("vocab":{"a":0,"b":1,"c":2,"d":3,"ab":4,"cd":5,"abcd":6,"ba":7,"?":8,"<0xC3>":9,"<0xA9>":10,
             "dcba":11},
             "merges":[["a","b"],["c","d"],["ab","cd"],["b","a"]]})" +
         others + "}";
}

TEST(Bpe, MergesByRankThenFromTheLeft) {
  EXPECT_EQ(ids_of(bpe(""), "abcdab"), (Ids{6, 4}));
  EXPECT_EQ(ids_of(bpe(""), "bab"), (Ids{1, 4}));  // ab before ba
  EXPECT_EQ(ids_of(bpe(""), "bba"), (Ids{1, 7}));
  EXPECT_EQ(ids_of(bpe(""), ""), Ids{});
}

// As the definition says, pair by pair.
Ids merged_plainly(const std::string& text) {
  const std::vector<std::array<uint32_t, 3>> merges{{0, 1, 4}, {2, 3, 5}, {4, 5, 6}, {1, 0, 7}};
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<uint32_t>(c - 'a'));
  for (bool again = true; again;) {
    again = false;
    for (const auto& [left, right, merged] : merges) {
      for (size_t i = 0; i + 1 < ids.size() && !again; ++i)
        if (ids[i] == left && ids[i + 1] == right) {
          ids[i] = merged;
          ids.erase(ids.begin() + static_cast<ptrdiff_t>(i) + 1);
          again = true;
        }
      if (again) break;
    }
  }
  return ids;
}

TEST(Bpe, WordsOfEveryLengthAreMergedAlike) {
  std::minstd_rand draw(7);
  const auto tokenizer = parse_tokenizer_json(bpe(""), "t.json");
  const auto encoder = tokenizer->encoder();
  for (size_t length = 1; length < 300; ++length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text.push_back(static_cast<char>('a' + draw() % 4));
    Ids ids;
    encoder->encode(text, false, &ids);
    ASSERT_EQ(ids, merged_plainly(text)) << text;
  }
}

TEST(Bpe, WhatIsNotInTheVocabulary) {
  EXPECT_EQ(ids_of(bpe(""), "axyb"), (Ids{4}));  // left out
  EXPECT_EQ(ids_of(bpe(R"("unk_token":"?",)"), "axyb"), (Ids{0, 8, 8, 1}));
  EXPECT_EQ(ids_of(bpe(R"("unk_token":"?","fuse_unk":true,)"), "axyb"), (Ids{0, 8, 1}));
  EXPECT_EQ(ids_of(bpe(R"("unk_token":"?","byte_fallback":true,)"), "aéx"), (Ids{0, 9, 10, 8}));
  // The package's order where bytes follow an unknown character.
  EXPECT_EQ(ids_of(bpe(R"("unk_token":"?","byte_fallback":true,)"), "xéa"), (Ids{9, 10, 8, 0}));
}

TEST(Bpe, WholeWordsWithIgnoreMerges) {
  EXPECT_EQ(ids_of(bpe(""), "dcba"), (Ids{3, 2, 7}));
  EXPECT_EQ(ids_of(bpe(R"("ignore_merges":true,)"), "dcba"), (Ids{11}));
  const std::string bytes = R"(,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false})";
  EXPECT_EQ(ids_of(bpe(R"("ignore_merges":true,)", bytes), "dcba"), (Ids{11}));
  EXPECT_EQ(ids_of(bpe("", bytes), "abcd dcba"), (Ids{6, 3, 2, 7}));  // no token for a space
}

TEST(Bpe, PrefixAndSuffix) {
  const std::string json = R"({"model":{"type":"BPE","continuing_subword_prefix":"#",
      "end_of_word_suffix":"$","unk_token":"?","vocab":{"?":0,"a":1,"#b":2,"#b$":3,"a$":4,"ab":5,"ab$":6},
      "merges":[["a","#b"],["a","#b$"]]}})";
  EXPECT_EQ(ids_of(json, "a"), (Ids{4}));
  EXPECT_EQ(ids_of(json, "ab"), (Ids{6}));
  EXPECT_EQ(ids_of(json, "abb"), (Ids{5, 3}));
  EXPECT_EQ(ids_of(json, "ba"), (Ids{0, 0}));
}

TEST(Bpe, WrongFilesAreRefused) {
  const auto error = [](const std::string& model) {
    return data_error_of([&] { parse_tokenizer_json(R"({"model":)" + model + "}", "t.json"); });
  };
  EXPECT_EQ(error(R"({"type":"BPE","vocab":{"a":0},"merges":[["a","b"]]})"),
            "t.json: model.merges[0]: 'ab' is not in model.vocab");
  EXPECT_EQ(error(R"({"type":"BPE","vocab":{"a":-1},"merges":[]})"),
            "t.json: model.vocab.a: value is -1; allowed: a whole number below 2^31");
  EXPECT_EQ(
      error(R"({"type":"BPE","vocab":{"a":0},"merges":["a"]})"),
      "t.json: model.merges[0]: value is \"a\"; allowed: two tokens, or a text with a space between them");
  EXPECT_EQ(
      error(R"({"type":"BPE","dropout":0.1,"vocab":{},"merges":[]})"),
      "t.json: model.dropout: value is 0.1; allowed: null, 0, because a text is always encoded "
      "in the same way");
  EXPECT_EQ(error(R"({"type":"BPE","unk_token":"u","vocab":{},"merges":[]})"),
            "t.json: model.unk_token: value is \"u\"; allowed: a token of model.vocab");
  EXPECT_EQ(error(R"({"type":"WordLevel"})"),
            "t.json: model.type: value is \"WordLevel\"; allowed: BPE, Unigram, WordPiece");
  EXPECT_EQ(data_error_of([] { parse_tokenizer_json("{}", "t.json"); }), "t.json: has no 'model'");
}

TEST(WordPiece, TheLongestTokenFirst) {
  const std::string json =
      R"({"model":{"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"##",
      "max_input_chars_per_word":6,"vocab":{"?":0,"un":1,"una":2,"##ff":3,"##f":4,"##a":5,"##able":6,"é":7}},
      "pre_tokenizer":{"type":"WhitespaceSplit"}})";
  EXPECT_EQ(ids_of(json, "un una unff"), (Ids{1, 2, 1, 3}));
  EXPECT_EQ(ids_of(json, "unaff"), (Ids{2, 3}));
  EXPECT_EQ(ids_of(json, "unable"), (Ids{0}));                   // una takes the a
  EXPECT_EQ(ids_of(json, "unffff unfffff"), (Ids{1, 3, 3, 0}));  // 7 characters
  EXPECT_EQ(ids_of(json, "é éa x"), (Ids{7, 7, 5, 0}));
}

TEST(Unigram, TheBestSum) {
  const auto json = [](const char* more) {
    return std::string(
               R"({"model":{"type":"Unigram","vocab":[["?",0],["a",-1],["b",-1.5],["ab",-2.25],
        ["abb",-4.25],["c",-9],["<0xC3>",-20],["<0xA9>",-20]])") +
           more + "}}";
  };
  EXPECT_EQ(ids_of(json(R"(,"unk_id":0)"), "ab"), (Ids{3}));
  EXPECT_EQ(ids_of(json(R"(,"unk_id":0)"), "abb"), (Ids{3, 2}));
  EXPECT_EQ(ids_of(json(R"(,"unk_id":0)"), "axyé"), (Ids{1, 0}));  // unknown ones are one
  EXPECT_EQ(ids_of(json(R"(,"unk_id":0,"byte_fallback":true)"), "aéa"), (Ids{1, 6, 7, 1}));
  EXPECT_EQ(data_error_of([&] { ids_of(json(""), "ax"); }),
            "t.json: model.unk_id: value is null, but 'x' is in no token");
  EXPECT_EQ(data_error_of([&] { ids_of(json(R"(,"unk_id":8)"), "a"); }),
            "t.json: model.unk_id: value is 8; allowed: an id below 8");
}

// More words than the cache has places, of all lengths up to past what it takes, twice.
TEST(WordCache, GivesEachWordItsOwnIds) {
  const std::string json = bpe("", R"(,"pre_tokenizer":{"type":"WhitespaceSplit"})");
  const auto tokenizer = parse_tokenizer_json(json, "t.json");
  const auto encoder = tokenizer->encoder();
  std::minstd_rand draw(3);
  std::vector<std::string> words;
  for (int i = 0; i < 60'000; ++i) {
    std::string word;
    for (unsigned k = 1 + draw() % 28; k > 0; --k)
      word.push_back(static_cast<char>('a' + draw() % 4));
    words.push_back(std::move(word));
  }
  for (int round = 0; round < 2; ++round)
    for (const std::string& word : words) {
      Ids ids;
      encoder->encode(word + " " + words[0], false, &ids);
      Ids wanted = merged_plainly(word);
      const Ids last = merged_plainly(words[0]);
      wanted.insert(wanted.end(), last.begin(), last.end());
      ASSERT_EQ(ids, wanted) << word;
    }
}

TEST(Encoders, OfSeveralThreadsShareATokenizer) {
  const auto tokenizer = parse_tokenizer_json(bpe("", R"(,"normalizer":{"type":"NFC"})"), "t.json");
  std::string text;
  std::minstd_rand draw(5);
  for (int i = 0; i < 2000; ++i) text.push_back(static_cast<char>('a' + draw() % 4));
  const Ids wanted = merged_plainly(text);
  std::vector<Ids> found(4);
  std::vector<std::thread> threads;
  for (Ids& ids : found)
    threads.emplace_back([&] { tokenizer->encoder()->encode(text, false, &ids); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : found) EXPECT_EQ(ids, wanted);
}

}  // namespace
}  // namespace lockstep::tokenizer
