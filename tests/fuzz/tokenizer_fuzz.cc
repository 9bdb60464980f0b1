// Tokenizers: finds files that are believed, reads outside a text, ids past the limit, and
// byte-level tokenizers that lose bytes.

#include "fuzz_target.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::fuzz {
namespace {

const std::string kBytes = R"({"model":{"type":"BPE","vocab":{},"merges":[]},
    "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"}})";

// A byte-level tokenizer that has a token for every byte, and two merges.
std::string byte_level() {
  std::string vocabulary;
  uint32_t id = 0;
  for (uint32_t c = 0x21; c <= 0x143; ++c) {
    if ((c > 0x7E && c < 0xA1) || c == 0xAD) continue;
    vocabulary += vocabulary.empty() ? "\"" : ",\"";
    if (c == '"' || c == '\\') vocabulary += '\\';
    tokenizer::append_char(&vocabulary, c);
    vocabulary += "\":" + std::to_string(id++);
  }
  vocabulary += R"(,"he":300,"Ġhe":301)";
  std::string json = kBytes;
  json.replace(json.find("{}"), 2, "{" + vocabulary + "}");
  json.replace(json.find("[]"), 2, R"([["h","e"],["Ġ","he"]])");
  return json;
}

}  // namespace

// A tokenizer.json, a zero, a text. Without a zero all is the text, of the byte-level tokenizer.
std::vector<std::string> seed_inputs() {
  const std::string text = std::string(1, '\0') + "the cat, été 123\n  <s> x\xff";
  return {
      "he said: he's été 12\n \n 😀 \xff\xe2\x82",
      byte_level() + text,
      R"({"added_tokens":[{"id":9,"content":"<s>","special":true,"lstrip":true,"normalized":false},
          {"id":8,"content":"cat","single_word":true,"rstrip":true,"normalized":true}],
          "normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"StripAccents"},
          {"type":"Strip","strip_left":true,"strip_right":true},{"type":"Lowercase"}]},
          "pre_tokenizer":{"type":"BertPreTokenizer"},
          "model":{"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"##",
          "max_input_chars_per_word":9,"vocab":{"?":0,"t":1,"##h":2,"##he":3,",":4}},
          "decoder":{"type":"WordPiece","prefix":"##","cleanup":true},
          "post_processor":{"type":"BertProcessing","sep":["b",2],"cls":["?",0]}})" +
          text,
      R"({"normalizer":{"type":"Precompiled","precompiled_charsmap":"CAAAAAAEAAAAAAAAYQA="},
          "pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},
          "model":{"type":"Unigram","unk_id":0,"byte_fallback":true,
          "vocab":[["?",0],["▁",-1.5],["t",-2],["th",-3e1],["e",-2],["<0xFF>",-9]]},
          "decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},
          {"type":"Strip","content":"▁","start":1,"stop":2},{"type":"Fuse"}]}})" +
          text,
      R"({"normalizer":{"type":"Prepend","prepend":"▁"},
          "pre_tokenizer":{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious"},
          "model":{"type":"BPE","unk_token":"?","fuse_unk":true,"byte_fallback":true,"ignore_merges":true,
          "end_of_word_suffix":"/","vocab":{"?":0,"t":1,"h":2,"e/":3,"th":4,"the/":5},
          "merges":["t h",["th","e/"]]},"decoder":{"type":"BPEDecoder","suffix":"/"}})" +
          text};
}

namespace {

void encode_and_decode(const tokenizer::Tokenizer& tokenizer,
                       std::string_view text,
                       bool keeps_bytes) {
  const auto encoder = tokenizer.encoder();
  std::vector<uint32_t> ids, again;
  encoder->encode(text, true, &ids);
  encoder->encode(text, true, &again);
  if (ids != again) fail("the same text has other ids the second time");
  for (const uint32_t id : ids)
    if (keeps_bytes && id >= tokenizer.id_limit()) fail("an id is past the limit");
  const std::string decoded = tokenizer.decode(ids, false);
  if (!keeps_bytes) return;
  std::string mended;
  tokenizer::append_as_utf8(&mended, text);
  if (decoded != mended) fail("a byte-level tokenizer does not give its text back");
}

}  // namespace
}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  static const auto byte_level = tokenizer::parse_tokenizer_json(fuzz::byte_level(), "bytes");
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  fuzz::expect_errors_only([&] {
    if (zero == std::string_view::npos) {
      fuzz::encode_and_decode(*byte_level, input, true);
      return;
    }
    const auto tokenizer = tokenizer::parse_tokenizer_json(input.substr(0, zero), "input");
    fuzz::encode_and_decode(*tokenizer, input.substr(zero + 1), false);
  });
  return 0;
}
