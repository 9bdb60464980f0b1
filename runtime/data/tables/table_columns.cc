#include "runtime/data/tables/table_columns.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/source_file.h"
#include "runtime/data/tables/column_names.h"
#include "runtime/data/tables/csv.h"

namespace lockstep {
namespace {

constexpr size_t kMaxQuotedBytes = 40;      // of a cell in a message
constexpr int kRecordsToCountFields = 100;  // without a header
constexpr size_t kMaxNames = 1'000'000;     // of one categorical column
constexpr size_t kMaxColumns = 250'000;

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

// Throws DataError if a name is used twice, as the config could mean either column.
void check_names(const TableText& file, const std::vector<std::string>& names) {
  std::unordered_map<std::string_view, size_t> columns;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto [first, is_new] = columns.emplace(names[i], i);
    if (!is_new) refuse_equal_names(file.name, first->second, i, names[i]);
  }
}

std::vector<std::string> header_of(const TableText& file, const TableConfig& config) {
  CsvReader reader(file.text, delimiter_of(config), kMaxColumns);
  if (!reader.next()) throw DataError("{}: has no records", file.name);
  if (!reader.problem().empty())
    throw DataError("{}:{}: {}", file.name, reader.line(), reader.problem());
  require_columns(file, reader.field_count());
  std::vector<std::string> names(reader.fields().begin(), reader.fields().end());
  check_names(file, names);
  return names;
}

// The names of columns without a header are their indices. The number of columns is the most
// frequent number of fields among the first records, so that a stray line at the top does not
// matter.
std::vector<std::string> numbers_of(const TableText& file, const TableConfig& config) {
  CsvReader reader(file.text, delimiter_of(config), kMaxColumns);
  std::map<size_t, int> seen;
  for (int i = 0; i < kRecordsToCountFields && reader.next(); ++i) ++seen[reader.field_count()];
  if (seen.empty()) throw DataError("{}: has no records", file.name);
  const auto most_frequent = std::max_element(
      seen.begin(), seen.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  require_columns(file, most_frequent->first);
  std::vector<std::string> names;
  for (size_t i = 0; i < most_frequent->first; ++i) names.push_back(std::to_string(i));
  return names;
}

size_t find_column(const TableText& file,
                   const TableSchema& schema,
                   const std::string& name,
                   const char* field) {
  const auto begin = schema.columns.begin(), end = schema.columns.end();
  const auto found =
      std::find_if(begin, end, [&](const ColumnSchema& column) { return column.name == name; });
  if (found == end) {
    std::vector<std::string_view> names;
    for (const ColumnSchema& column : schema.columns) names.push_back(column.name);
    throw DataError("{}: has no column '{}' (data.table.{}); its columns are {}",
                    file.name,
                    name,
                    field,
                    list_names(names));
  }
  return static_cast<size_t>(found - begin);
}

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

// Reads the records of one file; see read_columns().
class ColumnsReader {
 public:
  // has_target: whether the file has the target column; it may lack it if no targets are read.
  ColumnsReader(const TableText& file,
                const TableConfig& config,
                const TableSchema& schema,
                bool has_target)
      : file_(file),
        config_(config),
        schema_(schema),
        has_target_(has_target),
        ids_(schema.columns.size()) {
    table_.columns.resize(schema.columns.size());
  }

  // First pass: finds bad records and counts all, but stores nothing, so that a file that is
  // rejected takes no memory. *not_numeric, unless null, gets the inferred columns in which some
  // value is not a number.
  void scan(BadRecordLog* bad, std::vector<bool>* not_numeric) {
    for_each_record([&](const CsvReader& reader) {
      const std::string problem = check(reader, not_numeric);
      ++records_;
      if (problem.empty())
        ++rows_;
      else
        bad->add(reader.line(), problem);
    });
  }

  // Second pass: reads the good records, with the kinds that the schema has after scan().
  TableColumns read() {
    table_.records.reserve(records_);
    for (size_t i = 0; i < schema_.columns.size(); ++i) {
      const ColumnKind kind = schema_.columns[i].kind;
      if (kind == ColumnKind::kNumeric) table_.columns[i].numbers.reserve(rows_);
      if (kind == ColumnKind::kCategorical) table_.columns[i].ids.reserve(rows_);
    }
    for_each_record([&](const CsvReader& reader) {
      const bool good = check(reader, nullptr).empty();
      table_.records.push_back({reader.line(), good ? table_.rows : -1});
      if (good) append(reader.fields());
    });
    return std::move(table_);
  }

 private:
  template <typename Action>
  void for_each_record(Action&& action) const {
    CsvReader reader(file_.text, delimiter_of(config_), schema_.columns.size());
    if (config_.header) reader.next();
    while (reader.next()) {
      if (reader.unclosed_quote())
        throw DataError("{}:{}: {}", file_.name, reader.line(), reader.problem());
      action(reader);
    }
  }

  bool missing(std::string_view cell) const {
    return std::find(config_.missing.begin(), config_.missing.end(), cell) != config_.missing.end();
  }

  // The index in the file of a column of the schema.
  size_t file_column_of(size_t column) const {
    return !has_target_ && column > schema_.target ? column - 1 : column;
  }

  // Returns what is wrong with a record, or "". Stores its numbers in parsed_.
  std::string check(const CsvReader& reader, std::vector<bool>* not_numeric) {
    const auto& fields = reader.fields();
    const auto& columns = schema_.columns;
    const size_t expected = columns.size() - (has_target_ ? 0 : 1);
    if (!reader.problem().empty()) return reader.problem();
    if (reader.field_count() != expected)
      return fmt::format("has {} fields, expected {}", reader.field_count(), expected);
    if (columns[schema_.target].kind != ColumnKind::kIgnored && missing(fields[schema_.target]))
      return fmt::format("the target {} is missing", schema_.describe(schema_.target));
    parsed_.resize(columns.size());
    not_numbers_.clear();
    for (size_t i = 0; i < columns.size(); ++i) {
      if (columns[i].kind != ColumnKind::kNumeric) continue;
      const std::string_view cell = fields[file_column_of(i)];
      if (missing(cell)) {
        parsed_[i] = std::numeric_limits<double>::quiet_NaN();
      } else if (!parse_number(cell, &parsed_[i])) {
        if (not_numeric == nullptr || !columns[i].inferred)
          return fmt::format("{}: {} is not a number", schema_.describe(i), quote_cell(cell));
        not_numbers_.push_back(i);
      }
    }
    // A bad record must not change the kind of a column.
    for (const size_t i : not_numbers_) (*not_numeric)[i] = true;
    return "";
  }

  void append(const std::vector<std::string_view>& fields) {
    for (size_t i = 0; i < schema_.columns.size(); ++i) {
      TableColumn& column = table_.columns[i];
      switch (schema_.columns[i].kind) {
        case ColumnKind::kIgnored: break;
        case ColumnKind::kNumeric: column.numbers.push_back(parsed_[i]); break;
        case ColumnKind::kCategorical: {
          const std::string_view cell = fields[file_column_of(i)];
          column.ids.push_back(missing(cell) ? -1 : id_of(i, cell));
          break;
        }
      }
    }
    ++table_.rows;
  }

  int32_t id_of(size_t i, std::string_view cell) {
    const auto found = ids_[i].find(cell);
    if (found != ids_[i].end()) return found->second;
    auto& names = table_.columns[i].names;
    if (names.size() == kMaxNames)
      throw DataError(
          "{}: {} has more than {} different values; name it in data.table.ignore or .numeric",
          file_.name,
          schema_.describe(i),
          kMaxNames);
    names.emplace_back(cell);
    const auto id = static_cast<int32_t>(names.size() - 1);
    ids_[i].emplace(names.back(), id);
    return id;
  }

  const TableText& file_;
  const TableConfig& config_;
  const TableSchema& schema_;
  const bool has_target_;
  TableColumns table_;
  size_t records_ = 0, rows_ = 0;
  std::vector<std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>> ids_;
  std::vector<double> parsed_;       // (columns) numbers of the current record
  std::vector<size_t> not_numbers_;  // inferred columns in which the record has no number
};

// Throws DataError if a file's header differs from that of the training file. If no targets are
// read, the file may lack their column. Returns whether it has that column.
bool check_header(const TableText& file, const TableConfig& config, const TableSchema& schema) {
  const std::vector<ColumnSchema>& columns = schema.columns;
  const bool target_optional = columns[schema.target].kind == ColumnKind::kIgnored;
  if (!config.header)
    return !target_optional || numbers_of(file, config).size() + 1 != columns.size();
  std::vector<std::string> names = header_of(file, config);
  const bool lacks_target = target_optional && names.size() + 1 == columns.size();
  if (lacks_target)
    names.insert(names.begin() + static_cast<std::ptrdiff_t>(schema.target),
                 columns[schema.target].name);
  if (names.size() != columns.size())
    throw DataError("{}: the header has {} columns, expected {}{}",
                    file.name,
                    names.size(),
                    columns.size(),
                    target_optional ? ", or all but the target" : "");
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] != columns[i].name)
      throw DataError("{}: column {} of the header is {}, but in the training file it is {}",
                      file.name,
                      i - (lacks_target && i > schema.target ? 1 : 0),
                      quote_cell(names[i]),
                      quote_cell(columns[i].name));
  return !lacks_target;
}

}  // namespace

std::string quote_cell(std::string_view cell) {
  if (cell.size() <= kMaxQuotedBytes) return fmt::format("'{}'", escape_controls(cell));
  return fmt::format("'{}...'", escape_controls(cell.substr(0, kMaxQuotedBytes)));
}

std::string TableSchema::describe(size_t column) const {
  const std::string number = std::to_string(column);
  if (columns[column].name == number) return "column " + number;
  return fmt::format("column {}", quote_cell(columns[column].name));
}

BadRecordLog::BadRecordLog(const DataConfig& config, std::string file_name)
    : policy_(config.bad_records),
      max_fraction_(config.max_bad_fraction),
      file_name_(std::move(file_name)) {}

void BadRecordLog::add(int64_t line, const std::string& problem) {
  const std::string message = fmt::format("{}:{}: {}", file_name_, line, problem);
  if (policy_ == BadRecords::kFail)
    throw DataError("{} (set data.bad_records to SKIP or REPLACE to continue without it)", message);
  pending_ += policy_ == BadRecords::kReplace ? 1 : 0;
  if (count_++ == 0 || line < first_line_) {
    first_line_ = line;
    first_ = message;
  }
}

void BadRecordLog::require_fraction(int64_t records) const {
  if (static_cast<double>(count_) <=
      static_cast<double>(max_fraction_) * static_cast<double>(records))
    return;
  throw DataError(
      "{}: {} of {} records are bad, more than data.max_bad_fraction = {}; the first: {}",
      file_name_,
      count_,
      records,
      max_fraction_,
      first_);
}

TableSchema make_schema(const TableText& file, const TableConfig& config, ColumnKind target_kind) {
  refuse_utf16(file.text, file.name);
  TableSchema schema;
  for (std::string& name : config.header ? header_of(file, config) : numbers_of(file, config))
    schema.columns.push_back({.name = std::move(name)});
  std::vector<std::string> forced_by(schema.columns.size());
  const auto force = [&](const std::string& name, const char* field, ColumnKind kind) {
    const size_t column = find_column(file, schema, name, field);
    if (!forced_by[column].empty() && forced_by[column] != field)
      throw ConfigError(
          "data.table: column '{}' is named in both {} and {}", name, forced_by[column], field);
    forced_by[column] = field;
    schema.columns[column].kind = kind;
    schema.columns[column].inferred = false;
    return column;
  };
  schema.target = force(config.target, "target", target_kind);
  for (const auto& name : config.categorical) force(name, "categorical", ColumnKind::kCategorical);
  for (const auto& name : config.numeric) force(name, "numeric", ColumnKind::kNumeric);
  for (const auto& name : config.ignore) force(name, "ignore", ColumnKind::kIgnored);
  return schema;
}

TableColumns read_columns(const TableText& file,
                          const TableConfig& config,
                          bool infer,
                          TableSchema* schema,
                          BadRecordLog* bad) {
  refuse_utf16(file.text, file.name);
  const bool has_target = check_header(file, config, *schema);
  std::vector<bool> not_numeric(schema->columns.size());
  ColumnsReader reader(file, config, *schema, has_target);
  reader.scan(bad, infer ? &not_numeric : nullptr);
  for (size_t i = 0; i < not_numeric.size(); ++i)
    if (not_numeric[i]) schema->columns[i].kind = ColumnKind::kCategorical;
  TableColumns table = reader.read();
  if (table.rows == 0 && bad->count() == 0) throw DataError("{}: has no records", file.name);
  return table;
}

}  // namespace lockstep
