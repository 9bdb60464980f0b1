#include "runtime/data/tables/table_warnings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include "runtime/data/tables/cell_notation.h"
#include "runtime/data/tables/column_names.h"
#include "runtime/data/tables/csv.h"

namespace lockstep::data {
namespace {

// If at most one cell in this many is not a number, these cells are probably mistakes.
constexpr int64_t kCellsPerMistake = 10;
// So many different values in nearly as many rows are suspicious; in a few rows, only if they look
// like something else than categories.
constexpr int64_t kManyValues = 21, kFewValues = 3;
constexpr size_t kFewRows = 10;         // for a column with a name to count them
constexpr size_t kColumnsReported = 3;  // with the same cause
constexpr size_t kLongestMissing = 15;  // words that fit into a string without an allocation

// Whether a cell is a number that float32 does not hold.
bool is_too_large(const std::string& cell) {
  double number = 0;
  const char* end = cell.data() + cell.size();
  const char* begin = cell.data() + (cell.starts_with('+') ? 1 : 0);
  return std::from_chars(begin, end, number).ptr == end && !parse_number(cell, &number);
}

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

  // Describes a categorical column of which people rarely mean that each value is a category of
  // its own: a few cells made it categorical, it has nearly as many values as rows, or its values
  // are numbers in another notation. *cause gets what the values look like.
  std::string about_categories(const ColumnEncoding& encoding, std::string* cause) const {
    const size_t column = encoding.column;
    const bool inferred = schema_.columns[column].inferred;
    CellNotation notation = notation_of(table_.columns[column].names, schema_.numbers);
    if (notation.other_decimal) mind_other_columns(&notation);
    if (!notation.words.empty()) notation.remedy = missing_remedy(missing_in_use(), notation.words);
    *cause = notation.what;
    const std::string slip = inferred ? about_kind(column, notation) : "";
    if (!slip.empty()) return slip;
    const std::vector<std::string>& names = table_.columns[column].names;
    const Rows given = rows_with_value(column);
    const auto values = static_cast<int64_t>(names.size());
    const bool most = values * 2 > given.count, nearly_all = values * 10 > given.count * 9;
    const bool known = !notation.what.empty();
    const bool reported = values >= kManyValues ? (inferred ? most : nearly_all)
                                                : known && nearly_all && values >= kFewValues;
    const bool numbers = inferred && notation.is_number && values >= kFewValues;
    if (!reported && !numbers) return "";
    return fmt::format(
        "{}: {} has {} different values in {} rows and becomes {} inputs, one for each training "
        "value; {}; {}{}",
        file_.name,
        schema_.describe(column),
        values,
        given.count,
        encoding.features,
        describe_first(column, given),
        remedy_of(column, notation),
        inferred && !nearly_all ? "; if it is intended, name it in data.table.categorical" : "");
  }

  // What the values of a categorical column probably are, and what to do.
  std::string remedy_of(size_t column, const CellNotation& notation) const {
    std::string text;
    if (!notation.what.empty()) text = "they look like " + notation.what;
    if (!notation.remedy.empty()) text += ": " + notation.remedy;
    if (notation.is_number) return text;
    return fmt::format("{}{}to leave the column out, set {}",
                       text,
                       text.empty() ? "" : "; ",
                       schema_.ignore(column));
  }

  // Another decimal mark is no remedy if other columns have fractions with the config's.
  void mind_other_columns(CellNotation* notation) const {
    const auto is_fraction = [](double n) { return !std::isnan(n) && n != std::floor(n); };
    for (size_t i = 0; i < table_.columns.size(); ++i) {
      const std::vector<double>& numbers = table_.columns[i].numbers;
      if (std::ranges::none_of(numbers, is_fraction)) continue;
      notation->remedy = fmt::format("write them with the decimal mark \"{}\", as in {}",
                                     schema_.numbers.decimal,
                                     schema_.describe(i));
      return;
    }
  }

  // The words of data.table.missing that the file has, or all of them if they were given.
  std::vector<std::string> missing_in_use() const {
    if (config_.missing != TableConfig{}.missing) return config_.missing;
    const std::unordered_set<std::string> words(config_.missing.begin(), config_.missing.end());
    std::set<std::string> used = {""};
    CsvReader reader(file_.text, config_.delimiter[0]);
    while (reader.next())
      for (const std::string_view field : reader.fields())
        if (field.size() <= kLongestMissing && words.count(std::string(field)) > 0)
          used.emplace(field);
    return {used.begin(), used.end()};
  }

  bool is_number(const std::string& cell) const {
    double number = 0;
    return parse_number(cell, schema_.numbers, &number);
  }

  Rows rows_with_value(size_t column) const {
    const std::vector<int32_t>& ids = table_.columns[column].ids;
    return count_rows([&](int64_t row) { return ids[static_cast<size_t>(row)] >= 0; });
  }

  // Describes a column that became categorical because some cells are not numbers.
  std::string about_kind(size_t column, const CellNotation& notation) const {
    const TableColumn& cells = table_.columns[column];
    enum Kind : char { kNumber, kTooLarge, kText };
    std::vector<char> kinds;
    for (const std::string& name : cells.names)
      kinds.push_back(is_number(name) ? kNumber : is_too_large(name) ? kTooLarge : kText);
    const auto kind_of = [&](int64_t row) {
      const int32_t id = cells.ids[static_cast<size_t>(row)];
      return id < 0 ? char{kNumber} : kinds[static_cast<size_t>(id)];
    };
    const Rows non_numbers = count_rows([&](int64_t row) { return kind_of(row) != kNumber; });
    const Rows texts = count_rows([&](int64_t row) { return kind_of(row) == kText; });
    const Rows given = rows_with_value(column);
    if (non_numbers.count == 0 ||
        (texts.count > 0 && non_numbers.count * kCellsPerMistake > given.count))
      return "";
    const bool header = !schema_.named && non_numbers.count == 1 &&
                        non_numbers.first_line == table_.records[0].line;
    return fmt::format(
        "{}: {} is taken as categorical with {} values, because {} of its {} cells {} not a "
        "float32 number: {}; {}",
        file_.name,
        schema_.describe(column),
        cells.names.size(),
        non_numbers.count,
        given.count,
        non_numbers.count == 1 ? "is" : "are",
        describe_first(column, non_numbers),
        header ? "if this line has the names of the columns, set data.table.header: true"
        : notation.is_number
            ? remedy_of(column, notation)
            : "name it in data.table.categorical if that is intended, otherwise in .numeric");
  }

  // Describes a numeric column that numbers the rows: it has no name, or one such as "id", and each
  // row has another whole number.
  std::string about_row_numbers(size_t column) const {
    const ColumnSchema& of = schema_.columns[column];
    const std::vector<double>& numbers = table_.columns[column].numbers;
    const bool nameless = schema_.named ? of.name.empty() : column == 0;
    if (!of.inferred || !(nameless || (schema_.named && is_id_name(of.name)))) return "";
    bool counts = numbers.size() >= (of.name.empty() ? kFewValues : kFewRows);
    std::unordered_set<double> seen;
    for (size_t row = 0; row < numbers.size(); ++row) {
      if (numbers[row] != std::floor(numbers[row]) || !seen.insert(numbers[row]).second) return "";
      counts &= row == 0 || numbers[row] == numbers[row - 1] + 1;
    }
    if (!counts && (numbers.size() < kManyValues || !schema_.named)) return "";
    const Rows all = count_rows([](int64_t) { return true; });
    return fmt::format(
        "{}: {} {}, {}; nothing can be learned from it: to leave the column out, set {}",
        file_.name,
        schema_.describe(column),
        counts ? fmt::format("counts the {} rows", all.count)
               : fmt::format("has a different whole number in each of its {} rows, like an id",
                             all.count),
        describe_first(column, all),
        schema_.ignore(column));
  }

  // Describes a header that comes again, as in files that were joined.
  std::string about_repeated_header() const {
    if (!schema_.named) return "";
    CsvReader reader(file_.text, config_.delimiter[0]);
    reader.next();
    const std::vector<std::string> header(reader.fields().begin(), reader.fields().end());
    while (reader.next())
      if (std::equal(header.begin(), header.end(), reader.fields().begin(), reader.fields().end()))
        return fmt::format("{}: line {} repeats the header: delete it", file_.name, reader.line());
    return "";
  }

  // Describes a header that looks like a row: its numbers are in numeric columns, and its words are
  // among the values of their columns, also in that of the target.
  std::string about_header() const {
    if (!schema_.named) return "";
    for (size_t i = 0; i < schema_.columns.size(); ++i) {
      const std::string& name = schema_.columns[i].name;
      const std::vector<std::string>& values = table_.columns[i].names;
      const ColumnKind kind = schema_.columns[i].kind;
      if (kind == ColumnKind::kNumeric && !is_number(name)) return "";
      if (kind == ColumnKind::kCategorical && !std::ranges::count(values, name)) return "";
    }
    if (names_count()) return "";
    if (std::string repeated = about_repeated_header(); !repeated.empty()) return repeated;
    return fmt::format(
        "{}: the header looks like a row, because its cell in the target's column is {}; if the "
        "file has no header, set data.table.header: false",
        file_.name,
        quote_cell(schema_.columns[schema_.target].name));
  }

  // Whether the names of the columns are numbers in equal steps, such as years.
  bool names_count() const {
    std::vector<double> numbers;
    for (const ColumnSchema& column : schema_.columns) {
      double number = 0;
      if (!parse_number(column.name, &number)) return false;
      numbers.push_back(number);
    }
    for (size_t i = 1; i < numbers.size(); ++i)
      if (numbers[i] - numbers[i - 1] != numbers[1] - numbers[0]) return false;
    return numbers.size() > 2 || numbers[1] == numbers[0] + 1;
  }

  std::string about_emptiness(size_t column) const {
    const std::vector<double>& numbers = table_.columns[column].numbers;
    if (!std::ranges::all_of(numbers, [](double n) { return std::isnan(n); })) return "";
    const Rows all = count_rows([](int64_t) { return true; });
    return fmt::format(
        "{}: {} has no values: all its {} cells are missing, {}; to leave the column out, set {}",
        file_.name,
        schema_.describe(column),
        all.count,
        describe_first(column, all),
        schema_.ignore(column));
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
                                       const TableEncoder& encoder) {
  if (table.rows == 0) return {};
  const WarningFinder find(file, config, schema, table);
  std::vector<std::string> warnings;
  // A table may have thousands of columns with the same mistake.
  std::map<std::string, size_t> reported;  // by cause
  size_t more = 0;
  const auto note = [&](const std::string& cause, std::string warning) {
    if (warning.empty()) return;
    if (++reported[cause] <= kColumnsReported)
      warnings.push_back(std::move(warning));
    else
      ++more;
  };
  note("header", find.about_header());
  for (const ColumnEncoding& encoding : encoder.encodings()) {
    if (encoding.kind == ColumnKind::kCategorical) {
      std::string cause;
      std::string warning = find.about_categories(encoding, &cause);
      note(cause, std::move(warning));
    } else {
      note("empty", find.about_emptiness(encoding.column));
      note("row numbers", find.about_row_numbers(encoding.column));
    }
  }
  if (more > 0)
    warnings.push_back(fmt::format(
        "{}: {} more column{} like these", file.name, more, more > 1 ? "s are" : " is"));
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
      is_unknown.push_back(!std::ranges::binary_search(known, name));
    int64_t count = 0, first = -1;
    for (const int64_t row : rows) {
      const int32_t id = column.ids[static_cast<size_t>(row)];
      if (id < 0 || !is_unknown[static_cast<size_t>(id)]) continue;
      if (count++ == 0) first = row;
    }
    if (count == 0) continue;
    const auto record = std::ranges::find(table.records, first, &TableRecord::row);
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

}  // namespace lockstep::data
