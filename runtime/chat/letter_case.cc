#include "runtime/chat/letter_case.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/chat/lexer.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::chat {
namespace {

using Codes = std::vector<uint32_t>;

constexpr uint32_t kSigma = 0x3a3, kFinalSigma = 0x3c2;
constexpr uint32_t kSharpS = 0xdf;
constexpr uint32_t kIota = 0x3b9, kIotaBelow = 0x345;

struct Range {
  uint32_t first, last;
};

// Cased characters that are not cased letters (Other_Lowercase, Other_Uppercase) and that case
// conversion does not change.
constexpr Range kCased[] = {
    {0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},
    {0x2e0, 0x2e4},     {0x37a, 0x37a},     {0x1d2c, 0x1d6a},   {0x1d78, 0x1d78},
    {0x1d9b, 0x1dbf},   {0x2071, 0x2071},   {0x207f, 0x207f},   {0x2090, 0x209c},
    {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},   {0xa7f8, 0xa7f9},
    {0xab5c, 0xab5f},   {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0},
    {0x107b2, 0x107ba}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

// Punctuation that may be inside words (Case_Ignorable).
constexpr std::u32string_view kWithinWords =
    U"'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a";

utf8proc_int32_t signed_of(uint32_t code) { return static_cast<utf8proc_int32_t>(code); }

bool is_cased(uint32_t code) {
  const auto c = signed_of(code);
  const auto category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT || utf8proc_toupper(c) != c || utf8proc_tolower(c) != c ||
         std::ranges::any_of(kCased, [code](const Range& range) {
           return code >= range.first && code <= range.last;
         });
}

bool is_case_ignorable(uint32_t code) {
  switch (utf8proc_category(signed_of(code))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return kWithinWords.find(code) != std::u32string_view::npos;
  }
}

Codes codes_of(const std::string& text) {
  Codes codes;
  for (size_t i = 0; i < text.size();) {
    const tokenizer::DecodedChar c = tokenizer::decode_char(&text[i]);
    codes.push_back(c.code);
    i += c.bytes;
  }
  return codes;
}

// The parts of a lower-case letter that has no upper-case form ("ﬁ": f, i), which are its case
// folding if that has several characters. Empty for other letters.
std::span<const utf8proc_int32_t> parts_of(uint32_t code, std::array<utf8proc_int32_t, 8>* buffer) {
  const auto c = signed_of(code);
  if (utf8proc_category(c) == UTF8PROC_CATEGORY_LU) return {};
  int last_class = 0;
  const auto count = utf8proc_decompose_char(c,
                                             buffer->data(),
                                             static_cast<utf8proc_ssize_t>(buffer->size()),
                                             UTF8PROC_CASEFOLD,
                                             &last_class);
  if (count < 2) return {};
  return std::span(*buffer).first(static_cast<size_t>(count));
}

void append_upper(std::string* out, uint32_t code) {
  std::array<utf8proc_int32_t, 8> buffer;
  const auto parts = parts_of(code, &buffer);
  for (const auto part : parts)
    tokenizer::append_char(out, static_cast<uint32_t>(utf8proc_toupper(part)));
  if (parts.empty())
    tokenizer::append_char(out, static_cast<uint32_t>(utf8proc_toupper(signed_of(code))));
}

void append_title(std::string* out, uint32_t code) {
  std::array<utf8proc_int32_t, 8> buffer;
  const auto c = signed_of(code);
  const auto parts = parts_of(code, &buffer);
  const auto title = code == kSharpS ? c : utf8proc_totitle(c);  // not the library's rare 'ẞ'
  if (parts.empty() || title != c || utf8proc_category(c) == UTF8PROC_CATEGORY_LT)
    return tokenizer::append_char(out, static_cast<uint32_t>(title));
  bool begun = false;
  for (const auto part : parts) {
    const auto code_of_part = static_cast<uint32_t>(part);
    if (!begun) {
      tokenizer::append_char(out, static_cast<uint32_t>(utf8proc_totitle(part)));
      begun = utf8proc_totitle(part) != part || parts.size() == 1;
    } else {
      tokenizer::append_char(out, code_of_part == kIota ? kIotaBelow : code_of_part);
    }
  }
}

// Appends the lower case of text[i].
void append_lower(std::string* out, std::span<const uint32_t> text, size_t i) {
  if (text[i] != kSigma) return tokenizer::append_lowercase(out, text[i]);
  size_t before = i, after = i + 1;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  const bool final =
      before > 0 && is_cased(text[before - 1]) && (after == text.size() || !is_cased(text[after]));
  if (final) return tokenizer::append_char(out, kFinalSigma);
  tokenizer::append_lowercase(out, kSigma);
}

bool ends_word(uint32_t code) {
  if (code < 0x80 && std::string_view("-({[<").find(static_cast<char>(code)) != std::string::npos)
    return true;
  std::string character;
  tokenizer::append_char(&character, code);
  return leading_space(character) > 0;
}

}  // namespace

std::string upper_case(const std::string& text) {
  std::string out;
  for (const uint32_t code : codes_of(text)) append_upper(&out, code);
  return out;
}

std::string lower_case(const std::string& text) {
  std::string out;
  const Codes codes = codes_of(text);
  for (size_t i = 0; i < codes.size(); ++i) append_lower(&out, codes, i);
  return out;
}

std::string title_case(const std::string& text) {
  std::string out;
  const Codes codes = codes_of(text);
  bool in_word = false;
  for (size_t i = 0; i < codes.size(); ++i) {
    if (in_word) {
      append_lower(&out, codes, i);
    } else {
      append_title(&out, codes[i]);
    }
    in_word = is_cased(codes[i]);
  }
  return out;
}

std::string title_words(const std::string& text) {
  std::string out;
  const Codes codes = codes_of(text);
  for (size_t begin = 0; begin < codes.size();) {
    size_t end = begin + 1;
    append_upper(&out, codes[begin]);
    if (!ends_word(codes[begin])) {
      while (end < codes.size() && !ends_word(codes[end])) ++end;
      // Jinja lower-cases the rest of the word on its own.
      const auto rest = std::span(codes).subspan(begin + 1, end - begin - 1);
      for (size_t i = 0; i < rest.size(); ++i) append_lower(&out, rest, i);
    }
    begin = end;
  }
  return out;
}

std::string capitalized(const std::string& text) {
  std::string out;
  const Codes codes = codes_of(text);
  for (size_t i = 0; i < codes.size(); ++i) {
    if (i == 0) {
      append_title(&out, codes[i]);
    } else {
      append_lower(&out, codes, i);
    }
  }
  return out;
}

bool is_decimal_digit(uint32_t code) {
  return utf8proc_category(signed_of(code)) == UTF8PROC_CATEGORY_ND;
}

bool is_other_number(uint32_t code) {
  return utf8proc_category(signed_of(code)) == UTF8PROC_CATEGORY_NO;
}

bool is_printable(uint32_t code) {
  switch (utf8proc_category(signed_of(code))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return code == ' ';
    default: return true;
  }
}

}  // namespace lockstep::chat
