// Models of SentencePiece: finds sizes that are believed, reads outside a file or a text, and ids
// past the limit.

#include "fuzz_target.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep::fuzz {
namespace {

std::string field(char number, char value) { return {static_cast<char>(number << 3), value}; }

std::string field(char number, const std::string& content) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(content.size())} +
         content;
}

std::string piece(const std::string& text, char type, char score) {
  return field(1, field(1, text) + '\x15' + std::string(3, score) + "\xc0" + field(3, type));
}

}  // namespace

// The size of a text (a byte), the text, a model.
std::vector<std::string> seed_inputs() {
  const std::string text =
      "\x10"
      "the caf\xc3\xa9  <u>\xff \n";
  const std::string pieces = piece("<unk>", 2, 0) + piece("<s>", 3, 0) + piece("t", 1, 1) +
                             piece("h", 1, 2) + piece("th", 1, 0) + piece("\xE2\x96\x81", 1, 5) +
                             piece("\xE2\x96\x81th", 1, 7) + piece("<u>", 4, 0) + piece("f", 5, 0);
  const std::string map =
      field(3, field(2, std::string("\x08\0\0\0\0\x04\0\0\0\0\0\0a\0", 14)) + field(4, 0));
  return {text + pieces + field(2, field(3, 1)),
          text + pieces + field(2, field(3, 2)) + map,
          text + pieces + field(2, field(3, 1)) + field(3, field(3, 0) + field(5, 0))};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data + 1), size - 1);
  const std::string_view text = input.substr(0, data[0]);
  fuzz::expect_errors_only([&] {
    const auto tokenizer = tokenizer::parse_sentencepiece(input.substr(text.size()), "input");
    std::vector<uint32_t> ids;
    tokenizer->encoder()->encode(text, true, &ids);
    for (const uint32_t id : ids)
      if (id >= tokenizer->id_limit()) fuzz::fail("an id is past the limit");
    tokenizer->decode(ids, true);
  });
  return 0;
}
