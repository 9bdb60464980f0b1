#include "runtime/config/text_parts.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/odd_characters.h"
#include "runtime/base/text.h"

namespace lockstep::config {
namespace {

[[noreturn]] void refuse(std::string_view text, size_t at, const std::string& origin) {
  throw ConfigError("{}:{}: {}", origin, place_in(text, at), describe_odd_character(text, at));
}

// The offset after a text in quotes, or of the end of its line if it does not end there.
size_t end_of_quotes(std::string_view text, size_t begin) {
  const char quote = text[begin];
  for (size_t at = begin + 1; at < text.size(); ++at) {
    if (text[at] == '\n') return at;
    if (text[at] == quote) return at + 1;
    if (text[at] == '\\' && at + 1 < text.size() && text[at + 1] != '\n') ++at;
  }
  return text.size();
}

}  // namespace

std::string with_plain_lines(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  Lines lines(text);
  for (std::string_view line; lines.next(&line);) plain.append(line).append("\n");
  // The reader of lines does not tell whether the last one has an end.
  if (!text.ends_with('\n') && !text.ends_with('\r') && !plain.empty()) plain.pop_back();
  return plain;
}

void refuse_odd_characters(std::string_view text, const std::string& origin) {
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '"' || c == '\'') {
      const size_t end = end_of_quotes(text, at);
      const bool closed = end > at + 1 && text[end - 1] == c;
      for (size_t odd = at; !closed; ++odd) {
        odd = find_non_ascii(text.substr(0, end), odd);
        if (odd == std::string_view::npos) break;
        if (is_odd_quote(text, odd)) refuse(text, odd, origin);
      }
      at = end;
    } else if (c == '\0' || static_cast<unsigned char>(c) == 0x7F) {
      return;  // not a text; the parser reports it
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      refuse(text, at, origin);
    } else {
      ++at;
    }
  }
}

std::string place_in(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  return fmt::format("{}:{}",
                     std::ranges::count(before, '\n') + 1,
                     offset - (before.rfind('\n') + 1) + 1);  // npos + 1 is 0
}

}  // namespace lockstep::config
