#pragma once
// A reader for delimited text. It does not interpret the fields.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

// The delimiter that the first line of a text announces to Excel ("sep=;"), or 0.
char excel_delimiter(std::string_view text);

// Splits delimited text in memory into records, following RFC 4180: fields may be quoted with '"',
// a doubled quote stands for one, and delimiters and line ends inside quotes are text. Lines end
// with LF, CRLF or CR. Beyond the RFC, it skips blank lines, a UTF-8 byte order mark, a first line
// that announces this delimiter to Excel, and spaces around a field (outside its quotes).
class CsvReader {
 public:
  // Fields of a record beyond `max_fields` are counted but not kept.
  CsvReader(std::string_view text,
            char delimiter,
            size_t max_fields = std::numeric_limits<size_t>::max());

  // Reads the next record. Returns false at the end of the text.
  bool next();

  // The fields of the record. They point into the text or into this reader, and are valid until
  // next() is called.
  const std::vector<std::string_view>& fields() const { return fields_; }
  // The number of fields, including those that are not kept.
  size_t field_count() const { return field_count_; }
  // The line, from 1, on which the record begins.
  int64_t line() const { return record_line_; }
  // The number of bytes that have been read.
  size_t position() const { return position_; }
  // Why the record is malformed, or "". A malformed record ends at the end of its line.
  const std::string& problem() const { return problem_; }
  // Whether a quote in this record is never closed, so that the rest of the text was consumed.
  bool unclosed_quote() const { return unclosed_quote_; }

 private:
  bool is_line_end(size_t at) const;
  int64_t line_ends_before(size_t end) const;
  void skip_spaces();
  void read_plain_field();
  void read_quoted_field();
  bool keeps_field() const { return fields_.size() < max_fields_; }
  void add_field(std::string_view field);
  void skip_line_end();

  std::string_view text_;
  char delimiter_;
  size_t max_fields_;
  size_t position_ = 0;
  int64_t line_ = 1;
  int64_t record_line_ = 0;
  std::vector<std::string_view> fields_;
  size_t field_count_ = 0;
  std::deque<std::string> unescaped_;  // fields with doubled quotes
  std::string problem_;
  bool unclosed_quote_ = false;
};

// Parses a finite decimal number in the range of float32, such as "-1.5e3" or "+2". Returns false
// if `text` is anything else.
bool parse_number(std::string_view text, double* number);

}  // namespace lockstep::data
