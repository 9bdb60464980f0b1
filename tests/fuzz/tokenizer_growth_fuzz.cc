// Tokenizers that an input describes, applied to 10 kB of text under limits of time and memory:
// finds files that make more of a text than they may, or that take too long for it.

#include <algorithm>

#include "fuzz_target.h"
#include "runtime/tokenizer/growth_limit.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep::fuzz {
namespace {

constexpr size_t kTextBytes = 10'000;

// Words, spaces, runs of one letter, and characters of all lengths, marks and wide ones among them.
const std::string& text() {
  static const std::string made = [] {
    const std::string part =
        "the hat, été 123\n  <s> hhhhhhhh\t\u0301\u0323\uFDFA 中文\xff😀 \u0130aaaaaaaa";
    std::string whole(kTextBytes / 4, 'h');
    whole += std::string(kTextBytes / 8, ' ');
    while (whole.size() < kTextBytes) whole += part;
    return whole;
  }();
  return made;
}

std::string repeated(int times, const std::string& element) {
  std::string all;
  for (int i = 0; i < times; ++i) all += (i > 0 ? "," : "") + element;
  return all;
}

std::string replace(const std::string& from, const std::string& to) {
  return R"({"type":"Replace","pattern":{"String":")" + from + R"("},"content":")" + to + "\"}";
}

std::string sequence(const char* member, const std::string& steps) {
  return std::string(R"({"type":"Sequence",")") + member + "\":[" + steps + "]}";
}

}  // namespace

std::vector<std::string> seed_inputs() {
  const std::string bpe =
      R"("model":{"type":"BPE","byte_fallback":true,"unk_token":"?","continuing_subword_prefix":"##",
      "vocab":{"?":0,"h":1,"##h":2,"h##h":3,"<0x23>":4,"<0x61>":5,"hh":6},"merges":["h ##h"]})";
  const std::string words =
      R"("model":{"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"",
      "max_input_chars_per_word":20000,"vocab":{"?":0,"h":1,"hhhhhhhhhhhhhhhhhhhhh":2,"a":3}})";
  const std::string unigram =
      R"("model":{"type":"Unigram","unk_id":0,"byte_fallback":true,
      "vocab":[["?",0],["h",-1.5],["hhhhhhhhhhhhhhhb",-2],["<0xFF>",-9]]})";
  return {
      R"({"normalizer":)" + sequence("normalizers", repeated(20, replace("h", "hh"))) + "," +
          words + "}",
      R"({"normalizer":)" +
          sequence("normalizers",
                   replace(" ", std::string(100, 'h')) + R"(,{"type":"Prepend","prepend":"hh"},)" +
                       R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,
                       "lowercase":true},{"type":"Strip","strip_left":true,"strip_right":true})") +
          R"(,"added_tokens":[{"content":"hhhha","rstrip":true,"lstrip":true},{"content":" "}],)" +
          bpe + "}",
      R"({"normalizer":)" +
          sequence("normalizers",
                   replace("h", "\u0301\u0323") + R"(,{"type":"NFC"},{"type":"NFKD"})") +
          "," + unigram + "}",
      R"({"pre_tokenizer":)" +
          sequence(
              "pretokenizers",
              repeated(9, R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":false})") +
                  R"(,{"type":"Metaspace","replacement":"h"},{"type":"Digits",
                       "individual_digits":true},{"type":"Split","pattern":{"String":"hh"},
                       "behavior":"Isolated"})") +
          "," + bpe + "}",
      R"({"post_processor":{"type":"TemplateProcessing","special_tokens":{"s":{"ids":[)" +
          repeated(40, "0") + R"(]}},"single":[)" + repeated(9, R"({"SpecialToken":{"id":"s"}})") +
          R"(,{"Sequence":{"id":"A"}}]},)" + words + "}",
      R"({"decoder":)" +
          sequence("decoders", repeated(20, replace("h", "hh")) + R"(,{"type":"Fuse"})") +
          R"(,"normalizer":{"type":"Precompiled","precompiled_charsmap":"CAAAAAAEAAAAAAAAYQA="},)" +
          words + "}",
  };
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  constexpr size_t kMaxSpecial = 4096;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  fuzz::expect_errors_only([&] {
    const auto tokenizer = input.starts_with('{') ? tokenizer::parse_tokenizer_json(input, "input")
                                                  : tokenizer::parse_sentencepiece(input, "input");
    std::vector<uint32_t> ids;
    tokenizer->encoder()->encode(fuzz::text(), /*with_special=*/true, &ids);
    const size_t max_ids = tokenizer::GrowthLimit::kTimes * fuzz::text().size() +
                           tokenizer::GrowthLimit::kMoreBytes + kMaxSpecial;
    if (ids.size() > max_ids) fuzz::fail("a text becomes more ids than it may");
    ids.resize(std::min(ids.size(), fuzz::text().size()));
    const std::string decoded = tokenizer->decode(ids, false);
    const size_t max_bytes =
        tokenizer::GrowthLimit::kTimes * tokenizer::GrowthLimit::kBytesOfId * ids.size() +
        tokenizer::GrowthLimit::kMoreBytes;
    if (decoded.size() > max_bytes) fuzz::fail("ids become a longer text than they may");
  });
  return 0;
}
