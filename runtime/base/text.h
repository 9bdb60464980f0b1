#pragma once
// Text utilities: how names, numbers and lists stand in messages, and how texts are read.

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

namespace lockstep {

// Escapes control characters, for example as \n or \x1b: names from files must not move a
// terminal's cursor or split a line. UTF-8 stays as it is.
std::string escape_controls(std::string_view text);

// The same for our own text, which may have several lines: line breaks and tabs stay.
std::string escape_controls_in_lines(std::string_view text);

// 'text' in quotes. Control characters and quotes are escaped, so that it stays on one line; the
// text is truncated to 100 bytes.
std::string in_quotes(std::string_view text);

// `name` in quotes for a one-line message. Characters that are not printable ASCII are escaped, and
// names longer than 200 bytes are truncated.
std::string quote_name(std::string_view name);

// The text as one word for a shell, in quotes if it needs them.
std::string shell_word(std::string_view text);

// The end of a noun for this count: "s", or "" for one.
template <typename Count>
const char* plural(Count count) {
  return count == Count{1} ? "" : "s";
}

// "1 step", "2 steps".
template <typename Count>
std::string counted(Count count, std::string_view noun) {
  return std::to_string(count).append(" ").append(noun) + plural(count);
}

// Appends to a list, with the separator before all items but the first.
void append_item(std::string& list, std::string_view item, std::string_view separator = ", ");

// "a, b, c".
std::string joined(std::span<const std::string> items, std::string_view separator = ", ");

// "a, b and c", with this word before the last one.
std::string joined_with(std::string_view word, std::span<const std::string> items);

// The first items of a list of `count`, of which no more than `max` are named: "a, b and 3 more".
// `name_of(i)` is the text of item i.
template <typename NameOf>
std::string named_first(size_t count, size_t max, const NameOf& name_of) {
  std::string list;
  for (size_t i = 0; i < count && i < max; ++i) append_item(list, name_of(i));
  return count > max ? list + " and " + std::to_string(count - max) + " more" : list;
}

// Like std::string_view::find, but always in linear time.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);

// The words of a text, which are separated by white space.
std::vector<std::string> words_of(const std::string& text);

// The text without these characters at both ends.
std::string_view trimmed(std::string_view text, std::string_view blanks = " \t");

// All of `text` as a number. No value if it has anything else or is out of range.
template <typename Number>
std::optional<Number> parse_as(std::string_view text, [[maybe_unused]] int base = 10) {
  Number value{};
  const char* const end = text.data() + text.size();
  std::from_chars_result result{};
  if constexpr (std::is_integral_v<Number>)
    result = std::from_chars(text.data(), end, value, base);
  else
    result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // of UTF-8

// The text without its byte order mark, if it has one.
std::string_view without_byte_order_mark(std::string_view text);

// The one reader of lines for all files that people bring. Reads the lines of a text, which is
// borrowed. A line ends with "\n" (Unix), "\r\n" (Windows) or "\r" (old Mac), as in Python's text
// mode; none of them belongs to the line. A byte order mark at the beginning is skipped. A text
// that ends with a line end has no empty last line.
class Lines {
 public:
  explicit Lines(std::string_view text);

  // Sets *line to the next line. Returns false, and leaves *line unchanged, after the last one.
  bool next(std::string_view* line);

  int64_t number() const { return number_; }       // of the line that next() returned last, from 1
  std::string_view rest() const { return text_; }  // what next() has not returned yet

 private:
  std::string_view text_;
  size_t feed_;  // offset of the next "\n" in text_, or its size
  int64_t number_ = 0;
};

}  // namespace lockstep
