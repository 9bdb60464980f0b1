#include "runtime/data/tables/table_warnings.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/data/tables/csv.h"

namespace lockstep {
namespace {

// If at most one cell in this many is not a number, these cells are probably mistakes.
constexpr int64_t kCellsPerMistake = 10;

// Finds suspicious properties of the columns of one table. Each about_...() returns a warning or
// "".
class WarningFinder {
 public:
  WarningFinder(const TableText& file,
                const TableConfig& config,
                const TableSchema& schema,
                const TableColumns& table)
      : file_(file), config_(config), schema_(schema), table_(table) {}

  // The number of rows that `wanted` selects, and the line of the first one.
  struct Rows {
    int64_t count = 0, first_line = 0;
  };
  template <typename Wanted>
  Rows count_rows(Wanted&& wanted) const {
    Rows rows;
    for (const TableRecord& record : table_.records) {
      if (record.row < 0 || !wanted(record.row)) continue;
      if (rows.count++ == 0) rows.first_line = record.line;
    }
    return rows;
  }

  std::string cell(size_t column, int64_t line) const {
    CsvReader reader(file_.text, config_.delimiter[0]);
    while (reader.next() && reader.line() < line) {
    }
    return quote_cell(reader.fields()[column]);
  }

  std::string describe_first(size_t column, const Rows& rows) const {
    return fmt::format(
        "the first is {} on line {}", cell(column, rows.first_line), rows.first_line);
  }

  // Describes a column that became categorical because some cells are not numbers.
  std::string about_kind(size_t column) const {
    const TableColumn& cells = table_.columns[column];
    enum Kind : char { kNumber, kTooLarge, kText };
    std::vector<char> kinds;
    for (const std::string& name : cells.names) {
      double number = 0;
      const char* end = name.data() + name.size();
      const char* begin = name.data() + (name.starts_with('+') ? 1 : 0);
      const bool numeric = std::from_chars(begin, end, number).ptr == end;
      kinds.push_back(parse_number(name, &number) ? kNumber : (numeric ? kTooLarge : kText));
    }
    const auto kind_of = [&](int64_t row) {
      const int32_t id = cells.ids[static_cast<size_t>(row)];
      return id < 0 ? char{kNumber} : kinds[static_cast<size_t>(id)];
    };
    const Rows non_numbers = count_rows([&](int64_t row) { return kind_of(row) != kNumber; });
    const Rows texts = count_rows([&](int64_t row) { return kind_of(row) == kText; });
    const Rows given =
        count_rows([&](int64_t row) { return cells.ids[static_cast<size_t>(row)] >= 0; });
    if (non_numbers.count == 0 ||
        (texts.count > 0 && non_numbers.count * kCellsPerMistake > given.count))
      return "";
    return fmt::format(
        "{}: {} is taken as categorical with {} values, because {} of its {} cells {} not a "
        "float32 number: {}; name it in data.table.categorical if that is intended, otherwise in "
        ".numeric",
        file_.name,
        schema_.describe(column),
        cells.names.size(),
        non_numbers.count,
        given.count,
        non_numbers.count == 1 ? "is" : "are",
        describe_first(column, non_numbers));
  }

  std::string about_emptiness(size_t column) const {
    const std::vector<double>& numbers = table_.columns[column].numbers;
    if (!std::all_of(numbers.begin(), numbers.end(), [](double n) { return std::isnan(n); }))
      return "";
    const Rows all = count_rows([](int64_t) { return true; });
    return fmt::format(
        "{}: {} has no values: all its {} cells are missing, {}; name it in data.table.ignore",
        file_.name,
        schema_.describe(column),
        all.count,
        describe_first(column, all));
  }

  std::string about_target(const std::vector<double>& targets) const {
    const Rows good =
        count_rows([&](int64_t row) { return !std::isnan(targets[static_cast<size_t>(row)]); });
    const auto first =
        std::find_if(targets.begin(), targets.end(), [](double t) { return !std::isnan(t); });
    const bool same = std::all_of(targets.begin(), targets.end(), [&](double target) {
      return std::isnan(target) || target == *first;
    });
    if (good.count < 2 || !same) return "";
    return fmt::format(
        "{}: the target {} has the same value in all {} rows, {}: there is nothing to learn",
        file_.name,
        schema_.describe(schema_.target),
        good.count,
        describe_first(schema_.target, good));
  }

 private:
  const TableText& file_;
  const TableConfig& config_;
  const TableSchema& schema_;
  const TableColumns& table_;
};

}  // namespace

std::vector<std::string> find_warnings(const TableText& file,
                                       const TableConfig& config,
                                       const TableSchema& schema,
                                       const TableColumns& table,
                                       const std::vector<double>& targets) {
  const WarningFinder find(file, config, schema, table);
  std::vector<std::string> warnings;
  const auto note = [&](std::string warning) {
    if (!warning.empty()) warnings.push_back(std::move(warning));
  };
  if (table.rows > 0) {
    for (size_t i = 0; i < schema.columns.size(); ++i) {
      const ColumnSchema& column = schema.columns[i];
      if (i == schema.target) continue;
      if (column.kind == ColumnKind::kCategorical && column.inferred) note(find.about_kind(i));
      if (column.kind == ColumnKind::kNumeric) note(find.about_emptiness(i));
    }
    note(find.about_target(targets));
  }
  return warnings;
}

std::vector<std::string> find_unknown_categories(const TableText& file,
                                                 const TableSchema& schema,
                                                 const TableColumns& table,
                                                 std::span<const int64_t> rows,
                                                 const TableEncoder& encoder) {
  std::vector<std::string> warnings;
  for (const ColumnEncoding& encoding : encoder.encodings()) {
    if (encoding.kind != ColumnKind::kCategorical) continue;
    const TableColumn& column = table.columns[encoding.column];
    const auto& known = encoding.categories;
    std::vector<bool> is_unknown;
    for (const std::string& name : column.names)
      is_unknown.push_back(!std::binary_search(known.begin(), known.end(), name));
    int64_t count = 0, first = -1;
    for (const int64_t row : rows) {
      const int32_t id = column.ids[static_cast<size_t>(row)];
      if (id < 0 || !is_unknown[static_cast<size_t>(id)]) continue;
      if (count++ == 0) first = row;
    }
    if (count == 0) continue;
    const auto record = std::find_if(table.records.begin(),
                                     table.records.end(),
                                     [&](const TableRecord& of) { return of.row == first; });
    const int32_t id = column.ids[static_cast<size_t>(first)];
    warnings.push_back(fmt::format(
        "{}: {} has values in {} of {} evaluation rows that no training row has: the first is {} "
        "on line {}; they are treated as missing",
        file.name,
        schema.describe(encoding.column),
        count,
        rows.size(),
        quote_cell(column.names[static_cast<size_t>(id)]),
        record->line));
  }
  return warnings;
}

}  // namespace lockstep
