// Catches: special tokens and segments around texts and pairs that are not those of the tokenizer's
// file, a vocab.txt that is read as another tokenizer than BertTokenizer's.
#include <gtest/gtest.h>

#include "tokenizer_checks.h"

namespace lockstep::tokenizer {
namespace {

using test::data_error_of;

// "0:101 A0 0:102 B1 1:102": segments and special ids, or texts and their segments.
std::string written(const TextTemplate& parts) {
  std::string text;
  for (const TemplatePart& part : parts) {
    if (!text.empty()) text += ' ';
    if (part.text != TemplatePart::kSpecial) {
      text += (part.text == 0 ? "A" : "B") + std::to_string(part.segment);
      continue;
    }
    text += std::to_string(part.segment);
    for (const uint32_t id : part.ids) text += ":" + std::to_string(id);
  }
  return text;
}

std::unique_ptr<const Tokenizer> with_post_processor(const std::string& json) {
  return parse_tokenizer_json(
      R"({"model":{"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"##",
          "max_input_chars_per_word":9,"vocab":{"?":0,"a":1}},"post_processor":)" +
          json + "}",
      "t.json");
}

TEST(Templates, AreThoseOfTheFile) {
  const auto check = [](const std::string& json, const char* single, const char* pair) {
    const auto tokenizer = with_post_processor(json);
    EXPECT_EQ(written(tokenizer->text_template()), single) << json;
    EXPECT_EQ(written(tokenizer->pair_template()), pair) << json;
  };
  check("null", "A0", "A0 B1");
  check(R"({"type":"ByteLevel"})", "A0", "A0 B1");
  check(R"({"type":"BertProcessing","cls":["[CLS]",5],"sep":["[SEP]",6]})",
        "0:5 A0 0:6",
        "0:5 A0 0:6 B1 1:6");
  check(R"({"type":"RobertaProcessing","cls":["<s>",5],"sep":["</s>",6]})",
        "0:5 A0 0:6",
        "0:5 A0 0:6 0:6 B0 0:6");
  const std::string xlnet =
      R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}},
          {"SpecialToken":{"id":"<cls>","type_id":2}}],
          "pair":[{"Sequence":{"id":"B","type_id":0}},{"SpecialToken":{"id":"<sep>","type_id":0}},
          {"Sequence":{"id":"A","type_id":1}},{"SpecialToken":{"id":"<cls>","type_id":2}}],
          "special_tokens":{"<cls>":{"id":"<cls>","ids":[3,4],"tokens":["<","cls>"]},
          "<sep>":{"id":"<sep>","ids":[7],"tokens":["<sep>"]}}})";
  check(xlnet, "A0 2:3:4", "B0 0:7 A1 2:3:4");
  check(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},)" + xlnet + "]}",
        "A0 2:3:4",
        "B0 0:7 A1 2:3:4");
}

TEST(Templates, SpecialTokensAreCountedAndStandAroundATextThatIsEncoded) {
  const auto tokenizer =
      with_post_processor(R"({"type":"BertProcessing","cls":["[CLS]",5],"sep":["[SEP]",6]})");
  EXPECT_EQ(special_tokens_of(tokenizer->text_template()), 2);
  EXPECT_EQ(special_tokens_of(tokenizer->pair_template()), 3);
  EXPECT_EQ(tokenizer->id_limit(), 7u);  // so that 6 has room where ids are kept
  std::vector<uint32_t> ids;
  tokenizer->encoder()->encode("a", /*with_special=*/true, &ids);
  EXPECT_EQ(ids, (std::vector<uint32_t>{5, 1, 6}));
}

TEST(Templates, RefusesTextsThatStandTwiceOrNot) {
  const auto refusal = [](const char* pair) {
    return data_error_of([&] {
      with_post_processor(std::string(R"({"type":"TemplateProcessing","special_tokens":{},
          "single":[{"Sequence":{"id":"A","type_id":0}}],"pair":)") +
                          pair + "}");
    });
  };
  EXPECT_NE(refusal(R"([{"Sequence":{"id":"A"}},{"Sequence":{"id":"A"}}])").find("each once"),
            std::string::npos);
  EXPECT_NE(refusal(R"([{"Sequence":{"id":"B"}}])").find("sequences A and B"), std::string::npos);
}

const std::string kUncased =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncafe\n##s\n.\n\xE4\xB8\x96\n";

std::vector<uint32_t> ids_of(const Tokenizer& tokenizer, const char* text) {
  std::vector<uint32_t> ids;
  tokenizer.encoder()->encode(text, /*with_special=*/true, &ids);
  return ids;
}

TEST(BertVocabulary, IsBertTokenizer) {
  const auto tokenizer = parse_bert_vocabulary(kUncased, "vocab.txt");
  using Ids = std::vector<uint32_t>;
  EXPECT_EQ(ids_of(*tokenizer, "The Caf\xC3\xA9s. x"), (Ids{2, 5, 6, 7, 8, 1, 3}));
  // Chinese characters are words, [MASK] in a text is a token.
  EXPECT_EQ(ids_of(*tokenizer, "the\xE4\xB8\x96[MASK]"), (Ids{2, 5, 9, 4, 3}));
  EXPECT_EQ(tokenizer->id_limit(), 10u);
  EXPECT_EQ(tokenizer->id_of("[MASK]"), 4u);
  for (uint32_t id = 0; id < 10; ++id) EXPECT_EQ(tokenizer->is_special(id), id < 5) << id;
  EXPECT_EQ(written(tokenizer->pair_template()), "0:2 A0 0:3 B1 1:3");
  EXPECT_EQ(ids_of(*parse_bert_vocabulary(kUncased, "v", {.lower_case = false}), "The caf\xC3\xA9"),
            (Ids{2, 1, 1, 3}));
  EXPECT_EQ(
      ids_of(*parse_bert_vocabulary(kUncased, "v", {.strip_accents = false}), "The caf\xC3\xA9"),
      (Ids{2, 5, 1, 3}));
}

TEST(BertVocabulary, WithCapitalsKeepsThem) {
  const auto tokenizer =
      parse_bert_vocabulary("\xEF\xBB\xBF[UNK]\n[CLS]\n[SEP]\nThe\r\nthe\n", "vocab.txt");
  EXPECT_EQ(ids_of(*tokenizer, "The the"), (std::vector<uint32_t>{1, 3, 4, 2}));
}

TEST(BertVocabulary, RefusesOtherFiles) {
  EXPECT_EQ(data_error_of([] { parse_bert_vocabulary("[UNK]\n[CLS]\na\n", "v.txt"); }),
            "v.txt: has no line [SEP]; a vocab.txt of BERT has one");
  EXPECT_NE(data_error_of([] { parse_bert_vocabulary("\xFF\n", "v.txt"); }).find("not UTF-8"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::tokenizer
