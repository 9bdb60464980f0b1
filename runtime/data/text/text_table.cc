#include "runtime/data/text/text_table.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/names.h"
#include "runtime/base/table_names.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/data/tables/column_names.h"

namespace lockstep::data {
namespace {

using Use = TextColumn::Use;

constexpr char kAllowedNames[] = "a file named .tsv, .csv or .jsonl, plain or .gz";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t") == std::string_view::npos;
}

// The text of a member: a string as it is, a number or a boolean as JSON.
std::string cell_of(const Json& line, const TextColumn& column, std::string* problem) {
  const std::string& name = column.name;
  const Json* const member = line.find(name);
  if (member == nullptr || member->is_null() || member->is_structured()) {
    if (column.use == Use::kOptional) return {};
    *problem = fmt::format("'{}' is {}; allowed: a string or a number",
                           name,
                           member == nullptr   ? "missing"
                           : member->is_null() ? "null"
                                               : "a list or an object");
    return {};
  }
  return member->is_string() ? member->get<std::string>() : member->dump();
}

}  // namespace

TextTableKind text_table_kind(const std::string& path, const std::string& field) {
  std::string_view name = path;
  if (has_suffix(name, ".gz")) name.remove_suffix(3);
  if (has_suffix(name, ".tsv")) return TextTableKind::kTsv;
  if (has_suffix(name, ".csv")) return TextTableKind::kCsv;
  if (has_suffix(name, ".jsonl") || has_suffix(name, ".ndjson")) return TextTableKind::kJsonLines;
  config::refuse_value(field,
                       in_quotes(path),
                       "{}{}",
                       kAllowedNames,
                       conversion_by_name(path, TableForm::kJsonLines));
}

TextTable::TextTable(std::string_view text,
                     std::string name,
                     TextTableKind kind,
                     std::vector<TextColumn> columns,
                     bool quotes)
    : lines_(text), name_(std::move(name)), kind_(kind), columns_(std::move(columns)) {
  if (kind_ == TextTableKind::kJsonLines) {
    records_ = JsonRecords(text, name_);
    return;
  }
  if (quotes) csv_ = std::make_unique<CsvReader>(text, kind_ == TextTableKind::kCsv ? ',' : '\t');
  find_columns();
}

// Adds its index in the file. A column that is optional and not there becomes one that is ignored.
void TextTable::find_column(TextColumn* column, const std::vector<std::string_view>& names) {
  if (column->use == Use::kIgnored) return numbers_.push_back(0);
  std::optional<size_t> found = find_name(name(), names, column->name);
  if (const auto number = parse_as<size_t>(column->name);
      !found && number && *number < names.size())
    found = number;
  if (!found && column->use == Use::kOptional) column->use = Use::kIgnored;
  if (found || column->use == Use::kIgnored) return numbers_.push_back(found.value_or(0));
  throw DataError("{}: has no column '{}', which {} names; allowed: {}, or a number from 0 to {}",
                  name(),
                  column->name,
                  column->field,
                  list_names(names),
                  names.size() - 1);
}

void TextTable::find_columns() {
  has_header_ = std::ranges::any_of(
      columns_, [](const TextColumn& column) { return !parse_as<size_t>(column.name); });
  if (!has_header_) {
    for (const TextColumn& column : columns_)
      numbers_.push_back(column.use == Use::kIgnored ? 0 : *parse_as<size_t>(column.name));
    return require_columns();
  }
  TextTableRow row;
  std::vector<std::string_view> names;
  if (!read_cells(&row, &names)) throw DataError("{}: has no lines", name());
  if (!row.problem.empty()) throw DataError("{}:{}: {}", name(), row.line, row.problem);
  for (TextColumn& column : columns_) find_column(&column, names);
  width_ = names.size();
  require_columns();
}

// A name and an index may mean the same column.
void TextTable::require_columns() const {
  for (size_t i = 0; i < columns_.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (columns_[i].use != Use::kIgnored && columns_[j].use != Use::kIgnored &&
          numbers_[i] == numbers_[j])
        throw DataError("{}: {} {} and {} {} are both column {}; they must be different columns",
                        name(),
                        columns_[j].field,
                        in_quotes(columns_[j].name),
                        columns_[i].field,
                        in_quotes(columns_[i].name),
                        numbers_[i]);
}

bool TextTable::read_line(std::string_view* line) {
  while (lines_.next(line))
    if (!is_blank(*line)) return true;
  return false;
}

bool TextTable::read_cells(TextTableRow* row, std::vector<std::string_view>* cells) {
  *row = {};
  cells->clear();
  if (csv_ != nullptr) {
    if (!csv_->next()) return false;
    row->line = csv_->line();
    row->problem = csv_->problem();
    if (!row->problem.empty()) row->problem += " (to read quotes as text, set quotes: false)";
    if (csv_->unclosed_quote()) throw DataError("{}:{}: {}", name(), row->line, row->problem);
    *cells = csv_->fields();
    return true;
  }
  std::string_view line;
  if (!read_line(&line)) return false;
  row->line = lines_.number();
  const char delimiter = kind_ == TextTableKind::kCsv ? ',' : '\t';
  for (size_t at = 0;;) {
    const size_t end = line.find(delimiter, at);
    cells->push_back(line.substr(at, end - at));
    if (end == std::string_view::npos) return true;
    at = end + 1;
  }
}

bool TextTable::next(TextTableRow* row) {
  if (kind_ == TextTableKind::kJsonLines) {
    *row = {};
    if (!records_.next(&row->json)) return false;
    row->line = records_.number();
    return true;
  }
  if (!read_cells(row, &read_)) return false;
  if (!row->problem.empty()) return true;
  if (width_ == 0) width_ = read_.size();
  row->problem = problem_of_width(read_.size(), width_);
  if (!row->problem.empty()) return true;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Use use = columns_[i].use;
    if (use == Use::kIgnored || (use == Use::kOptional && numbers_[i] >= read_.size())) {
      row->cells.emplace_back();
      continue;
    }
    if (numbers_[i] >= read_.size()) {
      throw DataError("{}: has {} columns; {} is {}; allowed: 0 to {}",
                      name(),
                      read_.size(),
                      columns_[i].field,
                      columns_[i].name,
                      read_.size() - 1);
    }
    row->cells.emplace_back(read_[numbers_[i]]);
  }
  return true;
}

void TextTable::parse(TextTableRow* row) const {
  if (kind_ != TextTableKind::kJsonLines || !row->problem.empty()) return;
  try {
    const Json line = Json::parse(row->json);
    if (line.kind() != Json::Kind::kObject) {
      row->problem = "is not a JSON object";
      return;
    }
    for (const TextColumn& column : columns_) {
      row->cells.push_back(column.use == Use::kIgnored ? "" : cell_of(line, column, &row->problem));
      if (!row->problem.empty()) return;
    }
  } catch (const JsonError& error) {
    row->problem = problem_in_line(error);
  }
}

}  // namespace lockstep::data
