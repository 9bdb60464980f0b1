#include "runtime/data/tables/csv.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "runtime/base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

CsvReader::CsvReader(std::string_view text, char delimiter, size_t max_fields)
    : text_(text), delimiter_(delimiter), max_fields_(max_fields) {
  if (text_.starts_with(kByteOrderMark)) position_ = kByteOrderMark.size();
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
    if (!at_line_end()) {
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
    if (at_line_end()) {
      skip_line_end();
      return true;
    }
    ++position_;  // the delimiter
  }
}

bool CsvReader::at_line_end() const {
  if (text_[position_] == '\n') return true;
  return text_[position_] == '\r' && position_ + 1 < text_.size() && text_[position_ + 1] == '\n';
}

void CsvReader::skip_line_end() {
  position_ += text_[position_] == '\r' ? 2 : 1;
  ++line_;
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
  while (position_ < text_.size() && text_[position_] != delimiter_ && !at_line_end()) ++position_;
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
    for (size_t i = position_; i < std::min(quote, text_.size()); ++i) line_ += text_[i] == '\n';
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
  if (position_ == text_.size() || text_[position_] == delimiter_ || at_line_end()) return;
  problem_ = fmt::format("text follows the closing quote of field {}", field_count_);
  while (position_ < text_.size() && text_[position_] != delimiter_ && !at_line_end()) ++position_;
}

bool parse_number(std::string_view text, double* number) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && stopped == end &&
         std::abs(*number) <= std::numeric_limits<float>::max();
}

}  // namespace lockstep
