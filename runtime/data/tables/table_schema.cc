#include "runtime/data/tables/table_schema.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"
#include "runtime/data/source_file.h"
#include "runtime/data/tables/column_names.h"
#include "runtime/data/tables/csv.h"
#include "runtime/tokenizer/unicode.h"

namespace lockstep::data {
namespace {

constexpr size_t kMaxColumns = 250'000;
constexpr size_t kMaxNameBytes = size_t{64} << 10;

char delimiter_of(const TableConfig& config) {
  if (config.delimiter.size() != 1 || config.delimiter == "\"" || config.delimiter == "\n")
    throw ConfigError(
        "data.table.delimiter is '{}'; it must be one character, not a quote or a line break",
        config.delimiter);
  return config.delimiter[0];
}

void require_columns(const TableText& file, size_t columns) {
  if (columns > kMaxColumns)
    throw DataError("{}: has {} columns; allowed: up to {}", file.name, columns, kMaxColumns);
}

std::vector<std::string> header_of(const TableText& file,
                                   const TableConfig& config,
                                   TableRole role) {
  CsvReader reader(file.text, delimiter_of(config), kMaxColumns);
  if (!reader.next()) throw DataError("{}: has no records", file.name);
  if (!reader.problem().empty())
    throw DataError("{}:{}: {}", file.name, reader.line(), reader.problem());
  require_columns(file, reader.field_count());
  for (const std::string_view name : reader.fields())
    if (name.size() > kMaxNameBytes)
      throw DataError(
          "{}: its first line has a name of {} bytes; allowed: a header with names of up to {}",
          file.name,
          name.size(),
          kMaxNameBytes);
  check_header_row(file, delimiter_of(config), role);
  std::vector<std::string> names(reader.fields().begin(), reader.fields().end());
  check_unique(file.name, names);
  for (std::string& name : names) name = column_key(name);
  return names;
}

// The names of columns without a header are their indices. The number of columns is the most
// frequent number of fields among the first records, so that a stray line at the top does not
// matter.
std::vector<std::string> numbers_of(const TableText& file,
                                    const TableConfig& config,
                                    TableRole role) {
  const size_t width = usual_width(file, delimiter_of(config));
  if (width == 0) throw DataError("{}: has no records", file.name);
  require_columns(file, width);
  check_delimiter(file, delimiter_of(config), role);
  std::vector<std::string> names;
  for (size_t i = 0; i < width; ++i) names.push_back(std::to_string(i));
  return names;
}

// The column without a name that pandas shows as `name`, "Unnamed: 3".
std::optional<size_t> unnamed_column(const TableSchema& schema, std::string_view name) {
  constexpr std::string_view kUnnamed = "Unnamed: ";
  if (!name.starts_with(kUnnamed)) return std::nullopt;
  const auto number = parse_as<size_t>(name.substr(kUnnamed.size()));
  const bool found =
      number && *number < schema.columns.size() && schema.columns[*number].name.empty();
  return found ? number : std::nullopt;
}

[[noreturn]] void refuse_unknown_name(const TableText& file,
                                      const TableSchema& schema,
                                      const std::string& name,
                                      const char* field) {
  std::vector<std::string_view> names;
  std::string remedy;
  for (const ColumnSchema& column : schema.columns) {
    names.push_back(column.name);
    // Equal in upper and lower case.
    if (column.name.size() == name.size() && has_suffix(column.name, name))
      remedy = fmt::format("; did you mean {}?", quote_cell(column.name));
  }
  double number = 0;
  if (schema.named && std::ranges::any_of(names, [&](std::string_view of) {
        return parse_number(of, schema.numbers, &number);
      }))
    remedy += "; if its first line is a row, set data.table.header: false";
  if (!std::ranges::all_of(names, [](std::string_view name) {
        return tokenizer::valid_utf8_bytes(name) == name.size();
      }))
    remedy += "; the file is not UTF-8, so convert it: iconv -f WINDOWS-1252 -t UTF-8 FILE";
  throw DataError("{}: has no column '{}' (data.table.{}); its columns are {}{}{}",
                  file.name,
                  name,
                  field,
                  list_names(names),
                  schema.named ? ", or by number 0 to " + std::to_string(names.size() - 1) : "",
                  remedy);
}

// The columns that a name in the config stands for: several only if it is "".
std::vector<size_t> find_columns(const TableText& file,
                                 const TableSchema& schema,
                                 const std::string& name,
                                 const char* field) {
  const std::string key = column_key(name);
  std::vector<size_t> found;
  for (size_t i = 0; i < schema.columns.size(); ++i)
    if (schema.columns[i].name == key) found.push_back(i);
  if (!found.empty()) return found;
  if (const auto number = parse_as<size_t>(key); number && *number < schema.columns.size())
    return {*number};
  if (const auto unnamed = unnamed_column(schema, key)) return {*unnamed};
  refuse_unknown_name(file, schema, name, field);
}

}  // namespace

std::string TableSchema::describe(size_t column) const {
  const std::string number = std::to_string(column);
  if (columns[column].name.empty()) return fmt::format("column {} (without a name)", number);
  if (columns[column].name == number) return "column " + number;
  return fmt::format("column {}", quote_cell(columns[column].name));
}

std::string TableSchema::ignore(size_t column) const {
  const std::string number = std::to_string(column);
  const auto has_name = [](std::string_view name) {
    return [name](const ColumnSchema& of) { return of.name == name; };
  };
  const bool by_number = columns[column].name.empty() &&
                         std::ranges::count_if(columns, has_name("")) > 1 &&
                         std::ranges::none_of(columns, has_name(number));
  return fmt::format("data.table.ignore: \"{}\"",
                     by_number ? number : escape_controls(columns[column].name));
}

bool TableSchema::is_target(size_t column) const { return std::ranges::count(targets, column) > 0; }

TableSchema make_schema(const TableText& file,
                        const TableConfig& config,
                        const std::vector<std::pair<std::string, ColumnKind>>& targets) {
  refuse_utf16(file.text, file.name);
  TableSchema schema;
  for (std::string& name : config.header ? header_of(file, config, TableRole::kTraining)
                                         : numbers_of(file, config, TableRole::kTraining))
    schema.columns.push_back({.name = std::move(name)});
  schema.named = config.header;
  schema.numbers = {.decimal = config.decimal, .thousands = config.thousands};
  std::vector<std::string> forced_by(schema.columns.size());
  const auto force = [&](const std::string& name, const char* field, ColumnKind kind) {
    const std::vector<size_t> found = find_columns(file, schema, name, field);
    for (const size_t column : found) {
      if (!forced_by[column].empty() && forced_by[column] != field)
        throw ConfigError("data.table: {} is named in both {} and {}; it must be in one of them",
                          schema.describe(column),
                          forced_by[column],
                          field);
      forced_by[column] = field;
      schema.columns[column].kind = kind;
      schema.columns[column].inferred = false;
    }
    return found[0];
  };
  const char* const field = config.targets.empty() ? "target" : "targets";
  for (const auto& [name, kind] : targets) schema.targets.push_back(force(name, field, kind));
  schema.target = schema.targets.front();
  // Columns to predict that the model does not ask for are no inputs either.
  for (const std::string& name : config.targets) {
    const std::vector<size_t> found = find_columns(file, schema, name, field);
    if (!schema.is_target(found[0])) force(name, field, ColumnKind::kIgnored);
  }
  if (targets.size() > 1)
    for (const size_t column : schema.targets)
      schema.columns[column].inferred = schema.columns[column].kind == ColumnKind::kNumeric;
  for (const auto& name : config.categorical) force(name, "categorical", ColumnKind::kCategorical);
  for (const auto& name : config.numeric) force(name, "numeric", ColumnKind::kNumeric);
  for (const auto& name : config.ignore) force(name, "ignore", ColumnKind::kIgnored);
  return schema;
}

bool check_header(const TableText& file, const TableConfig& config, const TableSchema& schema) {
  const std::vector<ColumnSchema>& columns = schema.columns;
  const bool target_optional = schema.target_optional && schema.targets.size() == 1;
  if (!config.header)
    return !target_optional ||
           numbers_of(file, config, TableRole::kEvaluation).size() + 1 != columns.size();
  std::vector<std::string> names = header_of(file, config, TableRole::kEvaluation);
  const bool lacks_target = target_optional && names.size() + 1 == columns.size();
  if (lacks_target)
    names.insert(names.begin() + static_cast<std::ptrdiff_t>(schema.target),
                 columns[schema.target].name);
  if (names.size() != columns.size()) {
    std::vector<std::string_view> lacking;
    for (size_t i = 0; i < columns.size(); ++i)
      if (!(target_optional && i == schema.target) &&
          std::ranges::find(names, columns[i].name) == names.end())
        lacking.push_back(columns[i].name);
    throw DataError("{}: the header has {} columns, expected {}{}{}",
                    file.name,
                    names.size(),
                    columns.size(),
                    target_optional ? ", or all but the target" : "",
                    lacking.empty() ? "" : "; it has no column " + list_names(lacking));
  }
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] != columns[i].name)
      throw DataError("{}: column {} of the header is {}, but in the training file it is {}",
                      file.name,
                      i - (lacks_target && i > schema.target ? 1 : 0),
                      quote_cell(names[i]),
                      quote_cell(columns[i].name));
  return !lacks_target;
}

}  // namespace lockstep::data
