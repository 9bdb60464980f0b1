#include "runtime/data/tables/table_schema.h"

#include <algorithm>
#include <map>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/tables/column_names.h"
#include "runtime/data/tables/csv.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kDelimiters = ";\t|, ";

std::string in_config(char delimiter) {
  return delimiter == '\t' ? R"("\t")" : fmt::format("\"{}\"", delimiter);
}

CsvReader first_record(const TableText& file, char delimiter) {
  CsvReader reader(file.text, delimiter);
  reader.next();
  return reader;
}

// Whether the last cell of the first records after the header is empty.
bool ends_with_delimiter(const TableText& file, char delimiter) {
  CsvReader reader(file.text, delimiter);
  reader.next();
  for (int i = 0; i < kRecordsToCount && reader.next(); ++i)
    if (!reader.fields().empty() && !reader.fields().back().empty()) return false;
  return true;
}

[[noreturn]] void refuse_header_width(const TableText& file,
                                      char delimiter,
                                      size_t header,
                                      size_t rows) {
  const std::string line = quote_cell(first_record(file, delimiter).fields()[0]);
  if (line.starts_with("'#")) {
    CsvReader reader(file.text, delimiter);
    int64_t last = 0;
    while (reader.next() && reader.fields()[0].starts_with('#') && reader.field_count() != rows)
      last = reader.line();
    throw DataError(
        "{}: its first line, {}, is a comment, but the header must come first; delete {}",
        file.name,
        line,
        last == 1 ? std::string("it") : fmt::format("the lines up to line {}", last));
  }
  const bool title = header == 1 && !ends_with_delimiter(file, delimiter);
  if (rows == header + 1 && !title)
    throw DataError(
        "{}: its header has {} name{}, but its rows have {} cells: {}",
        file.name,
        header,
        plural(header),
        rows,
        ends_with_delimiter(file, delimiter)
            ? "each row ends with a delimiter; delete these, or add one to the header"
            : "the first or last column has no name; add one to the header, or a delimiter");
  throw DataError(
      "{}: its first line, which begins with {}, has {} cell{}, but its rows have {}; the header "
      "must come first: delete the lines before it",
      file.name,
      line,
      header,
      plural(header),
      rows);
}

}  // namespace

size_t usual_width(const TableText& file, char delimiter, int skip) {
  CsvReader reader(file.text, delimiter, 0);
  std::map<size_t, int> seen;
  for (int i = -skip; i < kRecordsToCount && reader.next(); ++i)
    if (i >= 0) ++seen[reader.field_count()];
  const auto most_frequent =
      std::ranges::max_element(seen, {}, [](const auto& entry) { return entry.second; });
  return most_frequent == seen.end() ? 0 : most_frequent->first;
}

void check_delimiter(const TableText& file, char delimiter, TableRole role) {
  const char announced = excel_delimiter(file.text);
  const auto remedy = [&](char other) {
    return role == TableRole::kEvaluation ? "write the file with the delimiter of the training file"
                                          : "set data.table.delimiter: " + in_config(other);
  };
  if (announced != 0 && announced != delimiter)
    throw DataError("{}: its first line announces the delimiter {} to Excel; {}",
                    file.name,
                    in_config(announced),
                    remedy(announced));
  const CsvReader first = first_record(file, delimiter);
  if (first.field_count() != 1 || !first.problem().empty()) return;
  for (const char other : kDelimiters) {
    const size_t width = first_record(file, other).field_count();
    const size_t least = other == ' ' ? 3 : 2;  // two words may be one name
    if (other == delimiter || width < least || usual_width(file, other, 1) != width) continue;
    throw DataError(
        "{}: its first line has one cell with data.table.delimiter {}, but {} with {}; {}",
        file.name,
        in_config(delimiter),
        width,
        in_config(other),
        remedy(other));
  }
}

void check_header_row(const TableText& file, char delimiter, TableRole role) {
  check_delimiter(file, delimiter, role);
  const CsvReader first = first_record(file, delimiter);
  const size_t header = first.field_count(), rows = usual_width(file, delimiter, 1);
  const bool comment = header > 0 && first.fields()[0].starts_with('#') && rows > 0;
  if (header < rows || (comment && header != rows))
    refuse_header_width(file, delimiter, header, rows);
}

}  // namespace lockstep::data
