#pragma once
// Delimited text: records and fields, without meaning.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Splits delimited text that lies in memory into records, as RFC 4180 describes: fields may be
// quoted with '"', a doubled quote stands for one, and delimiters and line ends inside quotes are
// text. Lines end with LF or CRLF. Beyond the RFC: blank lines are skipped, and so are a UTF-8 byte
// order mark and spaces around a field (outside its quotes).
class CsvReader {
 public:
  // most_fields: of a record; those after it are counted, not kept.
  CsvReader(std::string_view text,
            char delimiter,
            size_t most_fields = std::numeric_limits<size_t>::max());

  // Reads the next record; false at the end of the text.
  bool next();

  // Fields of the record; they point into the text or into this reader, until the next next().
  const std::vector<std::string_view>& fields() const { return fields_; }
  // How many the record has.
  size_t field_count() const { return field_count_; }
  // Line, from 1, on which the record begins.
  int64_t line() const { return record_line_; }
  // Bytes of the text that have been read.
  size_t position() const { return position_; }
  // Why the record is malformed; empty when it is well-formed. A malformed record ends with its
  // line.
  const std::string& problem() const { return problem_; }
  // The record opened a quote that the text never closes: what follows cannot be trusted.
  bool unclosed_quote() const { return unclosed_quote_; }

 private:
  bool at_line_end() const;
  void skip_spaces();
  void read_plain_field();
  void read_quoted_field();
  bool keeps_field() const { return fields_.size() < most_fields_; }
  void add_field(std::string_view field);
  void skip_line_end();

  std::string_view text_;
  char delimiter_;
  size_t most_fields_;
  size_t position_ = 0;
  int64_t line_ = 1;
  int64_t record_line_ = 0;
  std::vector<std::string_view> fields_;
  size_t field_count_ = 0;
  std::deque<std::string> unescaped_;  // fields with doubled quotes
  std::string problem_;
  bool unclosed_quote_ = false;
};

// Reads a finite decimal number that fits float32, such as "-1.5e3" or "+2"; false when `text` is
// anything else.
bool parse_number(std::string_view text, double* number);

}  // namespace lockstep
