// Catches .model files of SentencePiece that are read or applied otherwise than by its library,
// whose ids stand here, and files that are wrong and are taken.

#include <gtest/gtest.h>

#include <cstring>

#include "tokenizer_checks.h"

namespace lockstep::tokenizer {
namespace {

using test::data_error_of;
using Ids = std::vector<uint32_t>;

std::string varint(uint32_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

// A field of a protobuf message: a number, or bytes.
std::string field(uint32_t number, uint32_t value) { return varint(number << 3) + varint(value); }

std::string field(uint32_t number, const std::string& content) {
  return varint(number << 3 | 2) + varint(static_cast<uint32_t>(content.size())) + content;
}

enum Type : uint32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

std::string piece(const std::string& text, float score, Type type = kNormal) {
  std::string bits(sizeof(score), '\0');
  std::memcpy(bits.data(), &score, sizeof(score));
  return field(1, field(1, text) + "\x15" + bits + field(3, type));
}

std::string special() {
  return piece("<unk>", 0, kUnknown) + piece("<s>", 0, kControl) + piece("</s>", 0, kControl);
}

std::string trainer(uint32_t model_type, const std::string& more = "") {
  return field(2, field(3, model_type) + more);
}

struct Result {
  Ids ids;
  std::string text;
  bool operator==(const Result&) const = default;
};

void PrintTo(const Result& result, std::ostream* out) {
  for (const uint32_t id : result.ids) *out << id << ' ';
  *out << '"' << result.text << '"';
}

// Ids with the beginning of a sentence, and their text.
Result result_of(const std::string& model, std::string_view text) {
  const auto tokenizer = parse_sentencepiece(model, "t.model");
  Result result;
  tokenizer->encoder()->encode(text, true, &result.ids);
  result.text = tokenizer->decode(result.ids, true);
  return result;
}

// Pieces 3 to 10.
std::string letters() {
  return piece("▁", -4) + piece("a", -3) + piece("b", -3) + piece("ab", -1) + piece("▁a", -2) +
         piece("ba", -2) + piece("▁ab", -5) + piece("c", -9);
}

TEST(SentencePiece, Bpe) {
  const std::string model = special() + letters() + trainer(2);
  EXPECT_EQ(result_of(model, "ab ab"), (Result{{1, 9, 9}, "ab ab"}));
  EXPECT_EQ(result_of(model, "aba b"), (Result{{1, 9, 4, 3, 5}, "aba b"}));
  EXPECT_EQ(result_of(model, "  b  a  "), (Result{{1, 3, 5, 7}, "b a"}));
  EXPECT_EQ(result_of(model, "axyb"), (Result{{1, 7, 0, 5}, "a \u2047 b"}));
  EXPECT_EQ(result_of(model, ""), (Result{{1}, ""}));
}

TEST(SentencePiece, Unigram) {
  const std::string model = special() + letters() + trainer(1);
  EXPECT_EQ(result_of(model, "ab"), (Result{{1, 9}, "ab"}));  // the first of equal sums
  EXPECT_EQ(result_of(model, "bab"), (Result{{1, 3, 5, 6}, "bab"}));
  EXPECT_EQ(result_of(model, "xya"), (Result{{1, 3, 0, 4}, " \u2047 a"}));
}

TEST(SentencePiece, BytesForWhatIsUnknown) {
  std::string bytes;  // pieces 11 to 266
  for (int byte = 0; byte < 256; ++byte) bytes += piece(fmt::format("<0x{:02X}>", byte), 0, kByte);
  for (const uint32_t type : {1u, 2u}) {
    const std::string model = special() + letters() + bytes + trainer(type, field(35, 1));
    EXPECT_EQ(result_of(model, "cé"), (Result{{1, 3, 10, 11 + 0xC3, 11 + 0xA9}, "cé"}));
    const auto tokenizer = parse_sentencepiece(model, "t.model");
    EXPECT_EQ(tokenizer->decode(Ids{11 + 0xC3, 10, 999}, true), "\ufffdc");
  }
  EXPECT_EQ(data_error_of([] {
              parse_sentencepiece(special() + letters() + trainer(1, field(35, 1)), "t.model");
            }),
            "t.model: trainer_spec.byte_fallback: value is true; that is allowed only if there are "
            "pieces for all 256 bytes");
}

TEST(SentencePiece, UserDefinedPiecesAreNeverCut) {
  const std::string user = piece("bc", 0, kUserDefined);  // 11
  EXPECT_EQ(result_of(special() + letters() + user + trainer(2), "abc"),
            (Result{{1, 7, 11}, "abc"}));
  EXPECT_EQ(result_of(special() + letters() + user + trainer(1), "abc"),
            (Result{{1, 7, 11}, "abc"}));
}

TEST(SentencePiece, UnusedPiecesAreTakenApart) {
  const std::string unused = piece("abc", -0.5, kUnused) + piece("aba", -0.25, kUnused);  // 11, 12
  EXPECT_EQ(result_of(special() + letters() + unused + trainer(2), "cabc"),
            (Result{{1, 3, 10, 6, 10}, "cabc"}));
  EXPECT_EQ(result_of(special() + letters() + unused + trainer(2), "caba"),
            (Result{{1, 3, 10, 6, 4}, "caba"}));
  EXPECT_EQ(result_of(special() + letters() + unused + trainer(1), "cabc"),
            (Result{{1, 3, 10, 6, 10}, "cabc"}));
}

TEST(SentencePiece, SpacesAsTheFileSays) {
  const auto ids = [](const std::string& normalizer, std::string_view text) {
    return result_of(special() + letters() + trainer(2) + field(3, normalizer), text);
  };
  EXPECT_EQ(ids(field(3, 0), " a b"), (Result{{1, 4, 3, 5}, "a b"}));      // no space before
  EXPECT_EQ(ids(field(4, 0), "a  b"), (Result{{1, 7, 3, 3, 5}, "a  b"}));  // all spaces stay
  EXPECT_EQ(ids(field(3, 0) + field(4, 0), " c"), (Result{{1, 3, 10}, " c"}));
}

TEST(SentencePiece, WrongFilesAreRefused) {
  const auto error = [](const std::string& bytes) {
    return data_error_of([&] { parse_sentencepiece(bytes, "t.model"); });
  };
  const std::string refused = "t.model: neither a tokenizer.json nor a SentencePiece model: ";
  EXPECT_EQ(error("no model"), refused + "not a protobuf message");
  EXPECT_EQ(error(special().substr(0, 20)), refused + "truncated");
  EXPECT_EQ(error(letters()), refused + "0 unknown pieces instead of one");
  EXPECT_EQ(error(""), refused + "0 unknown pieces instead of one");
  EXPECT_EQ(error(special() + piece("\xff", 0)), refused + "a text is not UTF-8");
  EXPECT_EQ(error(special() + trainer(3)),
            "t.model: trainer_spec.model_type: value is WORD; allowed: UNIGRAM, BPE");
  EXPECT_EQ(error(special() + field(3, field(2, "abc"))),
            "t.model: normalizer_spec.precompiled_charsmap: shorter than its header");
}

}  // namespace
}  // namespace lockstep::tokenizer
