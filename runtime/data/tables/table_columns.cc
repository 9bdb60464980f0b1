#include "runtime/data/tables/table_columns.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <unordered_map>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/source_file.h"
#include "runtime/data/tables/cell_notation.h"
#include "runtime/data/tables/column_names.h"
#include "runtime/data/tables/csv.h"

namespace lockstep::data {
namespace {

constexpr size_t kMaxNames = 1'000'000;  // of one categorical column

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

// Reads the records of one file; see read_columns().
class ColumnsReader {
 public:
  // has_target: whether the file has the target column; it may lack an optional one.
  ColumnsReader(const TableText& file,
                const TableConfig& config,
                const TableSchema& schema,
                bool has_target)
      : file_(file),
        config_(config),
        schema_(schema),
        has_target_(has_target),
        ids_(schema.columns.size()) {
    for (const std::string& word : config.missing) {
      missing_.resize(std::max(missing_.size(), word.size() + 1));
      missing_[word.size()].push_back(word);
    }
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
    CsvReader reader(file_.text, config_.delimiter[0], schema_.columns.size());
    if (config_.header) reader.next();
    while (reader.next()) {
      if (reader.unclosed_quote())
        throw DataError("{}:{}: {}", file_.name, reader.line(), reader.problem());
      action(reader);
    }
  }

  bool missing(std::string_view cell) const {
    if (cell.size() >= missing_.size()) return false;
    const auto& words = missing_[cell.size()];
    return std::ranges::find(words, cell) != words.end();
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
      return fmt::format("has {} fields, expected {}{}",
                         reader.field_count(),
                         expected,
                         !fields.empty() && fields[0].starts_with('#')
                             ? "; lines that begin with '#' are not taken as comments"
                             : "");
    for (const size_t target : schema_.targets)
      if (!schema_.target_optional && missing(fields[target]))
        return no_target(target, fields[target]);
    parsed_.resize(columns.size());
    not_numbers_.clear();
    for (size_t i = 0; i < columns.size(); ++i) {
      if (columns[i].kind != ColumnKind::kNumeric) continue;
      const std::string_view cell = fields[file_column_of(i)];
      if (missing(cell)) {
        parsed_[i] = std::numeric_limits<double>::quiet_NaN();
      } else if (!parse_number(cell, schema_.numbers, &parsed_[i])) {
        if (schema_.is_target(i) && schema_.target_optional) {
          parsed_[i] = std::numeric_limits<double>::quiet_NaN();
          continue;
        }
        if (not_numeric == nullptr || !columns[i].inferred)
          return fmt::format("{}: {} is not a number{}",
                             schema_.describe(i),
                             quote_cell(cell),
                             remedy_for(i, cell));
        not_numbers_.push_back(i);
      }
    }
    // A bad record must not change the kind of a column.
    for (const size_t i : not_numbers_) (*not_numeric)[i] = true;
    return "";
  }

  // How to read a cell that is not a number, or "".
  std::string remedy_for(size_t i, std::string_view cell) const {
    const std::string remedy =
        number_remedy(std::string(cell), schema_.numbers, schema_.columns[i].inferred);
    if (!remedy.empty()) return remedy;
    const bool word = std::ranges::none_of(cell, [](char c) { return c >= '0' && c <= '9'; });
    if (!schema_.is_target(i))
      return word
                 ? "; if it marks a missing value, set data.table.missing to it and the other words"
                 : "";
    if (word && cell.size() > 1)
      return "; if it names a class, set the model's loss to SOFTMAX_CROSS_ENTROPY";
    return "";
  }

  std::string no_target(size_t target, std::string_view cell) const {
    const std::string column = schema_.describe(target);
    if (cell.empty()) return fmt::format("the target {} has no value", column);
    return fmt::format(
        "the target {} is {}, which marks a missing value; if it is a class, set "
        "data.table.missing to the other words, at least \"\"",
        column,
        quote_cell(cell));
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
          "{}: {} has more than {} different values, such as {}; to leave it out, set {}",
          file_.name,
          schema_.describe(i),
          kMaxNames,
          quote_cell(cell),
          schema_.ignore(i));
    names.emplace_back(cell);
    const auto id = static_cast<int32_t>(names.size() - 1);
    ids_[i].emplace(names.back(), id);
    return id;
  }

  const TableText& file_;
  const TableConfig& config_;
  const TableSchema& schema_;
  const bool has_target_;
  std::vector<std::vector<std::string_view>> missing_;  // words for a missing value, by their size
  TableColumns table_;
  size_t records_ = 0, rows_ = 0;
  std::vector<std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>> ids_;
  std::vector<double> parsed_;       // (columns) numbers of the current record
  std::vector<size_t> not_numbers_;  // inferred columns in which the record has no number
};

}  // namespace

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

TableColumns read_columns(const TableText& file,
                          const TableConfig& config,
                          bool infer,
                          TableSchema* schema,
                          BadRecordLog* bad) {
  refuse_utf16(file.text, file.name);
  const bool has_target = check_header(file, config, *schema);
  if (!has_target) schema->columns[schema->target].kind = ColumnKind::kIgnored;
  std::vector<bool> not_numeric(schema->columns.size());
  ColumnsReader reader(file, config, *schema, has_target);
  reader.scan(bad, infer ? &not_numeric : nullptr);
  for (size_t i = 0; i < not_numeric.size(); ++i)
    if (not_numeric[i]) schema->columns[i].kind = ColumnKind::kCategorical;
  TableColumns table = reader.read();
  if (table.rows == 0 && bad->count() == 0) throw DataError("{}: has no records", file.name);
  return table;
}

}  // namespace lockstep::data
