#include "runtime/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <sstream>

namespace lockstep {
namespace {

std::string escaped(std::string_view text, bool keep_lines) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F, which terminals obey as well, are encoded as C2 80 to C2 9F.
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {
      result += fmt::format("\\x{:02x}", next);
      ++i;
    } else if (byte == '\n') {
      result += keep_lines ? "\n" : "\\n";
    } else if (byte == '\t') {
      result += keep_lines ? "\t" : "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += text[i];
    }
  }
  return result;
}

// The offset of the first `c` in a text, or the text's size.
size_t find_or_end(std::string_view text, char c) {
  const size_t found = text.find(c);
  return std::min(found, text.size());
}

}  // namespace

std::string escape_controls(std::string_view text) { return escaped(text, false); }

std::string escape_controls_in_lines(std::string_view text) { return escaped(text, true); }

std::string in_quotes(std::string_view text) {
  constexpr size_t kMaxBytes = 100;
  size_t length = std::min(text.size(), kMaxBytes);
  if (length < text.size()) {  // do not split a UTF-8 character
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;
  }
  std::string result = "'";
  for (const char c : text.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\'' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      result += escaped(std::string_view(&c, 1), false);
    } else {
      result += c;
    }
  }
  return result + (length < text.size() ? "...'" : "'");
}

std::string quote_name(std::string_view name) {
  constexpr size_t kLongest = 200;
  std::string text = "'";
  for (const char c : name.substr(0, kLongest)) {
    if (c >= ' ' && c <= '~')
      text += c;
    else
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return text + (name.size() > kLongest ? "...'" : "'");
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

void append_item(std::string& list, std::string_view item, std::string_view separator) {
  if (!list.empty()) list += separator;
  list += item;
}

std::string joined(std::span<const std::string> items, std::string_view separator) {
  return fmt::format("{}", fmt::join(items, separator));
}

std::string joined_with(std::string_view word, std::span<const std::string> items) {
  if (items.size() < 2) return joined(items);
  return fmt::format("{} {} {}", joined(items.first(items.size() - 1)), word, items.back());
}

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string_view trimmed(std::string_view text, std::string_view blanks) {
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

std::string_view without_byte_order_mark(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

Lines::Lines(std::string_view text) : text_(without_byte_order_mark(text)) {
  feed_ = find_or_end(text_, '\n');
}

bool Lines::next(std::string_view* line) {
  if (text_.empty()) return false;
  const size_t size = find_or_end(text_.substr(0, feed_), '\r');
  const bool windows = size + 1 == feed_ && feed_ < text_.size();
  const size_t end = size == feed_ || windows ? std::min(feed_ + 1, text_.size()) : size + 1;
  *line = text_.substr(0, size);
  text_.remove_prefix(end);
  // In a file of an old Mac the next "\n" may be far away, so it is searched for only once.
  feed_ = end > feed_ ? find_or_end(text_, '\n') : feed_ - end;
  ++number_;
  return true;
}

}  // namespace lockstep
