#pragma once
// Lines of a text file, whoever wrote it: the one reader of lines for all files that people bring.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // of UTF-8

// The text without its byte order mark, if it has one.
std::string_view without_byte_order_mark(std::string_view text);

// Reads the lines of a text, which is borrowed. A line ends with "\n" (Unix), "\r\n" (Windows) or
// "\r" (old Mac), as in Python's text mode; none of them belongs to the line. A byte order mark at
// the beginning is skipped. A text that ends with a line end has no empty last line.
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
