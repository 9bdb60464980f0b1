// Catches added tokens that are not found, or found inside words, that leave spaces which they
// should take, or decode to something else; and special tokens around a text in another order.

#include <gtest/gtest.h>

#include "tests/reference/temporary_folder.h"
#include "tokenizer_checks.h"

namespace lockstep::tokenizer {
namespace {

using test::data_error_of;
using test::ids_of;
using Ids = std::vector<uint32_t>;

std::string with_added(const std::string& added, const std::string& others = "") {
  return R"({"model":{"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"b":2," ":3},"merges":[]},)" +
         others + R"("added_tokens":[)" + added + "]}";
}

TEST(AddedTokens, AreTakenOutFirst) {
  const std::string json = with_added(
      R"({"id":4,"content":"ab","special":true},{"id":5,"content":"abb","normalized":false})");
  EXPECT_EQ(ids_of(json, "aabba ab"), (Ids{1, 5, 1, 3, 4}));  // the longest of the leftmost
  EXPECT_EQ(ids_of(json, "abab"), (Ids{4, 4}));
}

TEST(AddedTokens, TakeSpacesAndOnlyWords) {
  const auto ids = [](const std::string& flags, std::string_view text) {
    return ids_of(with_added(R"({"id":4,"content":"X",)" + flags + R"("normalized":false})"), text);
  };
  EXPECT_EQ(ids("", "a  X  b"), (Ids{1, 3, 3, 4, 3, 3, 2}));
  EXPECT_EQ(ids(R"("lstrip":true,)", "a  X  b"), (Ids{1, 4, 3, 3, 2}));
  EXPECT_EQ(ids(R"("rstrip":true,)", "a  X  b"), (Ids{1, 3, 3, 4, 2}));
  EXPECT_EQ(ids(R"("lstrip":true,"rstrip":true,)", "a  X  X  b"), (Ids{1, 4, 4, 2}));
  EXPECT_EQ(ids(R"("single_word":true,)", "X aX Xa X"), (Ids{4, 3, 1, 0, 3, 0, 1, 3, 4}));
}

TEST(AddedTokens, InNormalizedText) {
  const std::string json = with_added(R"({"id":4,"content":"AB","normalized":true},)"
                                      R"({"id":5,"content":"BA","normalized":false})",
                                      R"("normalizer":{"type":"Lowercase"},)");
  EXPECT_EQ(ids_of(json, "ab aB AB"), (Ids{4, 3, 4, 3, 4}));
  EXPECT_EQ(ids_of(json, "BA ba"), (Ids{5, 3, 2, 1}));
  const auto tokenizer = parse_tokenizer_json(json, "t.json");
  EXPECT_EQ(tokenizer->decode(Ids{4, 5}, false), "ab BA");  // as the package: the normalized form
  EXPECT_EQ(tokenizer->id_of("AB"), 4u);
}

TEST(AddedTokens, OneThatIsTakenWhollyByTheOneBeforeIsNone) {
  const std::string json =
      with_added(R"({"id":4,"content":"X","rstrip":true,"normalized":false},)"
                 R"({"id":5,"content":"  ","lstrip":true,"normalized":false})");
  EXPECT_EQ(ids_of(json, "aX  b"), (Ids{1, 4, 2}));
  EXPECT_EQ(ids_of(json, "a  b"), (Ids{1, 5, 2}));
}

TEST(AddedTokens, RefusesWhatIsFoundNowhereOrHasAnotherTokensId) {
  EXPECT_EQ(
      data_error_of([] {
        ids_of(with_added(R"({"id":4,"content":" "})",
                          R"("normalizer":{"type":"Strip","strip_left":true,"strip_right":true},)"),
               "a");
      }),
      "t.json: added_tokens[0].content: is empty after normalization; allowed: a token that is "
      "not, or normalized: false");
  EXPECT_EQ(data_error_of([] {
              ids_of(with_added(R"({"id":4,"content":"AB"},{"id":5,"content":"Ab"})",
                                R"("normalizer":{"type":"Lowercase"},)"),
                     "a");
            }),
            "t.json: added_tokens[1].content: is normalized to 'ab', like an earlier token; tokens "
            "must differ after normalization");
  EXPECT_EQ(
      data_error_of([] {
        ids_of(R"({"model":{"type":"BPE","vocab":{"a":0,"b":2},"merges":[]},)"
               R"("added_tokens":[{"id":3,"content":"n"}]})",
               "a");
      }),
      "t.json: added_tokens[0].content: needs the next id, 2, which 'b' has in the vocabulary; "
      "new tokens are allowed only if the vocabulary's ids have no gaps");
}

TEST(AddedTokens, GetTheNextFreeIds) {
  const std::string json =
      with_added(R"({"id":0,"content":"n","special":true},{"id":9,"content":"a"})");
  const auto tokenizer = parse_tokenizer_json(json, "t.json");
  EXPECT_EQ(tokenizer->id_of("n"), 4u);
  EXPECT_EQ(tokenizer->id_of("a"), 1u);
  EXPECT_EQ(tokenizer->id_of("z"), std::nullopt);
  EXPECT_EQ(tokenizer->id_limit(), 5u);
  EXPECT_EQ(tokenizer->decode(Ids{1, 4, 2, 77}, true), "a b");
  EXPECT_EQ(tokenizer->decode(Ids{1, 4, 2, 77}, false), "a n b");
}

TEST(PostProcessors, PutTokensAroundATextWhereAsked) {
  const auto ids = [](const std::string& processor) {
    return ids_of(with_added("", R"("post_processor":)" + processor + ","), "a", true);
  };
  const std::string bert = R"({"type":"BertProcessing","sep":["b",2],"cls":["?",0]})";
  const std::string tagged =
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}},)"
      R"({"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"y","type_id":0}}],"pair":[],)"
      R"("special_tokens":{"x":{"id":"x","ids":[7,8],"tokens":[]},"y":{"id":"y","ids":[9],"tokens":[]}}})";
  EXPECT_EQ(ids(bert), (Ids{0, 1, 2}));
  EXPECT_EQ(ids(tagged), (Ids{7, 8, 1, 9}));
  EXPECT_EQ(ids(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},)" + tagged + "]}"),
            (Ids{7, 8, 1, 9}));
  EXPECT_EQ(
      data_error_of(
          [&] { ids(R"({"type":"Sequence","processors":[)" + bert + "," + tagged + "]}"); }),
      "t.json: post_processor.processors[1]: adds tokens, like an earlier one; at most one in a "
      "Sequence may add tokens");
  EXPECT_EQ(ids_of(with_added("", R"("post_processor":)" + bert + ","), "a", false), (Ids{1}));
  EXPECT_EQ(data_error_of([&] { ids(R"({"type":"Other"})"); }),
            "t.json: post_processor.type: value is \"Other\"; allowed: BertProcessing, ByteLevel, "
            "RobertaProcessing, Sequence, TemplateProcessing");
}

TEST(Files, WhatIsNoTokenizerIsRefused) {
  const testing::TemporaryFolder folder;
  const std::string absent = (folder.path() / "absent" / "tokenizer.json").string();
  EXPECT_EQ(data_error_of([&] { open_tokenizer(absent); }),
            "cannot open '" + absent + "': No such file or directory");
  EXPECT_EQ(data_error_of([] { parse_tokenizer_json("[", "t.json"); }).rfind("t.json: ", 0), 0u);
}

}  // namespace
}  // namespace lockstep::tokenizer
