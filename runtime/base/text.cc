#include "runtime/base/text.h"

#include <fmt/core.h>

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

}  // namespace

std::string escape_controls(std::string_view text) { return escaped(text, false); }

std::string escape_controls_in_lines(std::string_view text) { return escaped(text, true); }

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

}  // namespace lockstep
