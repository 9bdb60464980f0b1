#pragma once
// Characters as Hugging Face's tokenizers treat them: classes, lower case, normal forms. Each class
// has exactly the code points that the relevant part of the `tokenizers` package uses.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::tokenizer {

// Classes of code points. A code point may have several.
enum CharClass : uint16_t {
  kLetter = 1 << 0,        // \p{L} in a splitter's regular expression
  kNumber = 1 << 1,        // \p{N} in a splitter's regular expression
  kSpace = 1 << 2,         // \s
  kNumeric = 1 << 3,       // what Digits splits
  kPunctuation = 1 << 4,   // what Punctuation and BertPreTokenizer split
  kNonspacing = 1 << 5,    // what BertNormalizer strips as accents
  kMark = 1 << 6,          // what StripAccents strips
  kControl = 1 << 7,       // what BertNormalizer removes, except U+0000 and U+FFFD
  kWord = 1 << 8,          // \w in Whitespace, and of words next to added tokens
  kInert = 1 << 9,         // newer than the package's normal forms, which leave it unchanged
  kUpperOrMark = 1 << 10,  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLowerOrMark = 1 << 11,  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
};

// The classes of every code point, [0x110000].
const uint16_t* char_class_table();

// A code point of valid UTF-8, and its length in bytes.
struct DecodedChar {
  uint32_t code;
  uint32_t bytes;
};

// Decodes the code point at `text`, which must be valid UTF-8 and not at its end.
inline DecodedChar decode_char(const char* text) {
  const auto byte = [text](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const auto tail = [&byte](int i) { return byte(i) & 0x3F; };
  if (byte(0) < 0x80) return {byte(0), 1};
  if (byte(0) < 0xE0) return {(byte(0) & 0x1F) << 6 | tail(1), 2};
  if (byte(0) < 0xF0) return {(byte(0) & 0x0F) << 12 | tail(1) << 6 | tail(2), 3};
  return {(byte(0) & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3), 4};
}

// The offset of the last code point of a text, which must be valid UTF-8 and not empty.
inline size_t last_char_begin(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

void append_char(std::string* text, uint32_t code);

// The number of bytes at the beginning that are valid UTF-8.
size_t valid_utf8_bytes(std::string_view text);

// Appends `bytes` as valid UTF-8. Each maximal part of an invalid sequence becomes one U+FFFD, as
// the Unicode standard recommends and Python's errors="replace" does.
void append_as_utf8(std::string* out, std::string_view bytes);

// Appends the lower case of a code point, which may be two code points.
void append_lowercase(std::string* text, uint32_t code);

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// The normal form of a text, which must be valid UTF-8.
std::string normal_form(std::string_view text, NormalForm form);

}  // namespace lockstep::tokenizer
