#include "launcher/command_line/table_file.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/json.h"

namespace lockstep::launcher {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

// The text as a JSON string, with U+FFFD for bytes that are not UTF-8.
std::string to_json_text(std::string_view text) {
  return Json(text).dump({.replace_invalid = true});
}

char delimiter_of(TableStyle style) { return style == TableStyle::kTsv ? '\t' : ','; }

}  // namespace

std::string table_field(std::string_view text, char delimiter) {
  std::string valid = Json::parse(to_json_text(text)).get<std::string>();
  const char special[] = {delimiter, '"', '\n', '\r', '\0'};
  const bool blank_end = !valid.empty() && (valid.front() == ' ' || valid.back() == ' ');
  if (!blank_end && valid.find_first_of(special) == std::string::npos) return valid;
  std::string field = "\"";
  for (const char c : valid) field.append(c == '"' ? 2 : 1, c);
  return field + "\"";
}

std::vector<std::string> unique_names(std::vector<std::string> names) {
  std::unordered_set<std::string> taken;
  for (std::string& name : names) {
    const std::string first = name;
    for (int i = 2; !taken.insert(name).second; ++i) name = fmt::format("{} ({})", first, i);
  }
  return names;
}

TableFile::TableFile(const std::filesystem::path& path,
                     TableStyle style,
                     std::vector<std::string> columns)
    : file_(path), style_(style), columns_(std::move(columns)) {
  for (std::string& column : columns_) {
    if (style_ == TableStyle::kJsonLines) {
      column = to_json_text(column);
      continue;
    }
    if (&column != &columns_.front()) text_ += delimiter_of(style_);
    text_ += table_field(column, delimiter_of(style_));
  }
  if (style_ != TableStyle::kJsonLines) text_ += '\n';
}

void TableFile::add(std::span<const TableCell> row) {
  LOCKSTEP_CHECK(row.size() == columns_.size(), "{} cells ", row.size());
  const bool json = style_ == TableStyle::kJsonLines;
  if (json) text_ += '{';
  for (size_t i = 0; i < row.size(); ++i) {
    if (i > 0) text_ += json ? ',' : delimiter_of(style_);
    if (json) text_.append(columns_[i]).append(":");
    add_cell(row[i]);
  }
  text_ += json ? "}\n" : "\n";
  write_if_full(kBufferBytes);
}

void TableFile::add_cell(const TableCell& cell) {
  const bool json = style_ == TableStyle::kJsonLines;
  const auto number = [&](auto value) {
    if (json && !std::isfinite(value))
      text_ += "null";
    else
      fmt::format_to(std::back_inserter(text_), "{}", value);
  };
  if (const auto* text = std::get_if<std::string_view>(&cell))
    text_ += json ? to_json_text(*text) : table_field(*text, delimiter_of(style_));
  else if (const auto* integer = std::get_if<int64_t>(&cell))
    fmt::format_to(std::back_inserter(text_), "{}", *integer);
  else if (const auto* value = std::get_if<float>(&cell))
    number(*value);
  else if (const auto* wide = std::get_if<double>(&cell))
    number(*wide);
  else if (json)
    text_ += "null";
}

void TableFile::write_if_full(size_t bytes) {
  if (text_.size() < bytes) return;
  file_.write(text_);
  text_.clear();
}

void TableFile::finish() {
  write_if_full(0);
  file_.finish();
}

}  // namespace lockstep::launcher
