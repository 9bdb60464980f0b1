#include "runtime/data/tables/csv.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "runtime/base/text.h"

namespace lockstep::data {

char excel_delimiter(std::string_view text) {
  std::string_view line;
  if (!Lines(text).next(&line)) return 0;
  if (line.starts_with('"') && line.ends_with('"') && line.size() > 1)
    line = line.substr(1, line.size() - 2);
  constexpr std::string_view kMark = "sep=";
  if (line.size() != kMark.size() + 1) return 0;
  for (size_t i = 0; i < kMark.size(); ++i)
    if ((i < 3 ? line[i] | 0x20 : line[i]) != kMark[i]) return 0;
  return line.back();
}

CsvReader::CsvReader(std::string_view text, char delimiter, size_t max_fields)
    : text_(text), delimiter_(delimiter), max_fields_(max_fields) {
  if (text_.starts_with(kByteOrderMark)) position_ = kByteOrderMark.size();
  if (excel_delimiter(text_) != delimiter_) return;
  while (position_ < text_.size() && !is_line_end(position_)) ++position_;
  if (position_ < text_.size()) skip_line_end();
}

bool CsvReader::next() {
  fields_.clear();
  field_count_ = 0;
  unescaped_.clear();
  problem_.clear();
  // Skip blank lines.
  while (true) {
    const size_t begin = position_;
    skip_spaces();
    if (position_ == text_.size()) return false;
    if (!is_line_end(position_)) {
      position_ = begin;
      break;
    }
    skip_line_end();
  }
  record_line_ = line_;
  while (true) {
    skip_spaces();
    if (position_ < text_.size() && text_[position_] == '"')
      read_quoted_field();
    else
      read_plain_field();
    if (position_ == text_.size()) return true;
    if (is_line_end(position_)) {
      skip_line_end();
      return true;
    }
    ++position_;  // the delimiter
  }
}

bool CsvReader::is_line_end(size_t at) const { return text_[at] == '\n' || text_[at] == '\r'; }

void CsvReader::skip_line_end() {
  position_ += text_.substr(position_, 2) == "\r\n" ? 2 : 1;
  ++line_;
}

// The number of line ends in the text from `position_` to `end`.
int64_t CsvReader::line_ends_before(size_t end) const {
  int64_t count = 0;
  for (size_t i = position_; i < end; ++i)
    count += text_[i] == '\n' || (text_[i] == '\r' && text_.substr(i, 2) != "\r\n");
  return count;
}

void CsvReader::skip_spaces() {
  while (position_ < text_.size() && text_[position_] == ' ' && delimiter_ != ' ') ++position_;
}

void CsvReader::add_field(std::string_view field) {
  ++field_count_;
  if (keeps_field()) fields_.push_back(field);
}

// Reads up to the next delimiter or line end.
void CsvReader::read_plain_field() {
  const size_t begin = position_;
  while (position_ < text_.size() && text_[position_] != delimiter_ && !is_line_end(position_))
    ++position_;
  size_t end = position_;
  while (end > begin && text_[end - 1] == ' ' && delimiter_ != ' ') --end;
  add_field(text_.substr(begin, end - begin));
}

void CsvReader::read_quoted_field() {
  const size_t begin = ++position_;
  std::string* copy = nullptr;
  size_t copied_to = begin;  // the text before this offset is in *copy
  while (true) {
    const size_t quote = text_.find('"', position_);
    line_ += line_ends_before(std::min(quote, text_.size()));
    if (quote == std::string_view::npos) {
      position_ = text_.size();
      problem_ = "a quote is never closed";
      unclosed_quote_ = true;
      return;
    }
    position_ = quote + 1;
    if (position_ < text_.size() && text_[position_] == '"') {
      if (copy == nullptr && keeps_field()) copy = &unescaped_.emplace_back();
      if (copy != nullptr) copy->append(text_.substr(copied_to, position_ - copied_to));
      copied_to = ++position_;
      continue;
    }
    if (copy != nullptr) {
      copy->append(text_.substr(copied_to, quote - copied_to));
      add_field(*copy);
    } else {
      add_field(text_.substr(begin, quote - begin));
    }
    break;
  }
  skip_spaces();
  if (position_ == text_.size() || text_[position_] == delimiter_ || is_line_end(position_)) return;
  problem_ = fmt::format("text follows the closing quote of field {}", field_count_);
  while (position_ < text_.size() && text_[position_] != delimiter_ && !is_line_end(position_))
    ++position_;
}

bool parse_number(std::string_view text, double* number) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && stopped == end &&
         std::abs(*number) <= std::numeric_limits<float>::max();
}

}  // namespace lockstep::data
