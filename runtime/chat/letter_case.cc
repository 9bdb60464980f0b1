#include "runtime/chat/letter_case.h"

#include <utf8proc.h>

#include "runtime/tokenizer/unicode.h"

namespace lockstep::chat {
namespace {

void append_upper(std::string* out, uint32_t code) {
  append_char(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))));
}

bool is_cased(uint32_t code) {
  const auto c = static_cast<utf8proc_int32_t>(code);
  return utf8proc_toupper(c) != c || utf8proc_tolower(c) != c;
}

template <typename F>
std::string each_character(const std::string& text, F append) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_char(&text[i]);
    append(&out, c.code);
    i += c.bytes;
  }
  return out;
}

}  // namespace

std::string upper_case(const std::string& text) { return each_character(text, append_upper); }

std::string lower_case(const std::string& text) { return each_character(text, append_lowercase); }

std::string title_case(const std::string& text) {
  bool in_word = false;
  return each_character(text, [&](std::string* out, uint32_t code) {
    if (in_word) {
      append_lowercase(out, code);
    } else {
      append_upper(out, code);
    }
    in_word = is_cased(code);
  });
}

std::string capitalized(const std::string& text) {
  bool first = true;
  return each_character(text, [&](std::string* out, uint32_t code) {
    if (first) {
      append_upper(out, code);
    } else {
      append_lowercase(out, code);
    }
    first = false;
  });
}

}  // namespace lockstep::chat
