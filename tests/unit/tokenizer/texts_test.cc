// Catches normalizers and decoders that differ from the `tokenizers` package, whose results stand
// here, and bytes that are no UTF-8 taken for characters.

#include <gtest/gtest.h>

#include "runtime/tokenizer/decoder.h"
#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/unicode.h"
#include "tokenizer_checks.h"

namespace lockstep::tokenizer {
namespace {

std::string normalized(const std::string& json, std::string_view text) {
  const Json value = Json::parse(json);
  GrowthLimit limit = GrowthLimit::of_text(text.size());
  return Normalizer(JsonNode(value, "t.json")).apply(text, limit);
}

std::string decoded(const std::string& json, std::vector<std::string> tokens) {
  const Json value = Json::parse(json);
  GrowthLimit limit = GrowthLimit::of_ids(tokens.size());
  return Decoder(JsonNode(value, "t.json")).decode(std::move(tokens), limit);
}

TEST(Normalizers, Bert) {
  EXPECT_EQ(normalized(R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,)"
                       R"("strip_accents":null,"lowercase":true})",
                       "Hé\tLLO\x01 中文\u0130 \ufffd."),
            "he llo  中  文 i .");
}

TEST(Normalizers, OneAfterTheOther) {
  EXPECT_EQ(normalized(R"({"type":"Sequence","normalizers":[{"type":"Nmt"},{"type":"NFKC"},)"
                       R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":"_"}]})",
                       "ﬁ\u200b\u200b  ①\x02x  "),
            "fi_1x_");
  EXPECT_EQ(normalized(R"({"type":"Sequence","normalizers":[)"
                       R"({"type":"Strip","strip_left":true,"strip_right":true},)"
                       R"({"type":"Prepend","prepend":"<"},{"type":"NFD"},{"type":"StripAccents"},)"
                       R"({"type":"Lowercase"}]})",
                       " \u3000Åé ΑΣ "),
            "<ae ασ");
  EXPECT_EQ(normalized(R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})", " a  b"),
            "▁a▁▁b");
  EXPECT_EQ(normalized("null", "As It Is"), "As It Is");
  const std::string text = " a  b\n\u3000c\td e";
  EXPECT_EQ(normalized(R"({"type":"Replace","pattern":{"Regex":"\\s+"},"content":"_"})", text),
            "_a_b_c_d_e");
  EXPECT_EQ(
      normalized(R"({"type":"Replace","pattern":{"Regex":"\\s{2,}|[\\n\\r\\t]"},"content":"_"})",
                 text),
      " a_b_c_d e");
}

TEST(Normalizers, FormsComposeAcrossAscii) {
  EXPECT_EQ(normal_form("aae\u0301b", NormalForm::kNfc), "aaéb");
  EXPECT_EQ(normal_form("aaéb", NormalForm::kNfd), "aae\u0301b");
  EXPECT_EQ(normal_form("x\u0301\u0323", NormalForm::kNfc), "x\u0323\u0301");
  EXPECT_EQ(normal_form("plain", NormalForm::kNfkc), "plain");
  EXPECT_EQ(normal_form("", NormalForm::kNfkc), "");
  EXPECT_EQ(normal_form("\u32ff", NormalForm::kNfkc), "\u32ff");  // newer than the package's forms
}

TEST(Normalizers, PrependNeedsAText) {
  EXPECT_EQ(
      test::data_error_of([] {
        parse_tokenizer_json(
            R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"normalizer":{"type":"Prepend","prepend":""}})",
            "t.json");
      }),
      "t.json: normalizer.prepend: value is \"\"; allowed: a text of at least one character");
}

TEST(Normalizers, UnknownOnesAreNamed) {
  EXPECT_EQ(test::data_error_of(
                [] { normalized(R"({"type":"Sequence","normalizers":[{"type":"X"}]})", ""); }),
            "t.json: normalizers[0].type: value is \"X\"; allowed: BertNormalizer, Lowercase, NFC, "
            "NFD, NFKC, NFKD, Nmt, Precompiled, Prepend, Replace, Sequence, Strip, StripAccents");
  EXPECT_EQ(test::data_error_of(
                [] { normalized(R"({"type":"Precompiled","precompiled_charsmap":"AQ=="})", ""); }),
            "t.json: precompiled_charsmap: shorter than its header");
}

TEST(Utf8, BrokenPartsAreReplacedOneByOne) {
  const auto mended = [](std::string_view bytes) {
    std::string text;
    append_as_utf8(&text, bytes);
    return text;
  };
  EXPECT_EQ(mended("ok é 😀"), "ok é 😀");
  EXPECT_EQ(mended("\xff"), "\ufffd");
  EXPECT_EQ(mended("a\x80z"), "a\ufffdz");
  EXPECT_EQ(mended("\xe2\x82"), "\ufffd");  // cut off
  EXPECT_EQ(mended("\xe2\x82 \xf0\x9f\x98"), "\ufffd \ufffd");
  EXPECT_EQ(mended("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");            // a surrogate
  EXPECT_EQ(mended("\xc0\xaf"), "\ufffd\ufffd");                      // longer than needed
  EXPECT_EQ(mended("\xf4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd");  // past U+10FFFF
}

TEST(Decoders, AsThePackage) {
  EXPECT_EQ(decoded(R"({"type":"Sequence","decoders":[)"
                    R"({"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
                    R"({"type":"ByteFallback"},{"type":"Fuse"},)"
                    R"({"type":"Strip","content":" ","start":1,"stop":0}]})",
                    {"▁a", "<0xE2>", "<0x82>", "<0xAC>", "b", "<0xFF>", "<0x41>"}),
            "a€b\ufffd\ufffd");
  EXPECT_EQ(decoded(R"({"type":"WordPiece","prefix":"##","cleanup":true})",
                    {"do", "not", "##s", "x", ".", "'s"}),
            "do nots x.'s");
  EXPECT_EQ(decoded(R"({"type":"Metaspace","replacement":"▁"})", {"▁a", "▁b▁", "c"}), "a b c");
  EXPECT_EQ(decoded(R"({"type":"BPEDecoder","suffix":"</w>"})", {"a</w>", "b", "c</w>"}), "a bc");
  EXPECT_EQ(decoded(R"({"type":"ByteLevel"})", {"Ġa", "Ã", "©é", "Ł日", "Ã"}),
            " aé\ufffdŁ日\ufffd");
  EXPECT_EQ(decoded("null", {"a", "b"}), "a b");
}

}  // namespace
}  // namespace lockstep::tokenizer
