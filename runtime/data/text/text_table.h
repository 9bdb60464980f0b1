#pragma once
// Rows of texts in a table: TSV, CSV or JSON lines.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/tables/csv.h"

namespace lockstep {

enum class TextTableKind { kCsv, kTsv, kJsonLines };

// By the file's name. Throws ConfigError, which names `field`, where it says nothing.
TextTableKind text_table_kind(const std::string& path, const std::string& field);

// A column of which rows have a cell: its name, or its number from 0; in JSON the member. `field` is
// the field of the config that says so. One that is not `wanted` need not be there, and its cells are
// empty: it only says, as the others do, whether the first line has names.
struct TextColumn {
  std::string field;
  std::string name;
  bool wanted = true;
};

struct TextTableRow {
  int64_t line = 0;                // on which it begins, from 1
  std::string problem;             // why it cannot be used; empty: it can
  std::vector<std::string> cells;  // of the columns, in their order
  std::string_view json;           // a line that parse() makes the cells of
};

// Reads rows one after the other. The first line of .tsv and .csv has the names of the columns, unless
// all are given by number: then it is a row like others.
class TextTable {
 public:
  // Borrows `text`; `name` is the file's for messages. `quotes`: of cells, see CsvReader; false: each
  // line is a row, cut at the delimiter. Throws DataError where a column is missing, its name stands
  // twice in the first line, or two of them are the same.
  TextTable(std::string_view text,
            std::string name,
            TextTableKind kind,
            std::vector<TextColumn> columns,
            bool quotes);

  // The next row; false at the end. Blank lines are passed over.
  bool next(TextTableRow* row);
  // Completes a row; any thread may do so. `row` keeps its problem where it has one.
  void parse(TextTableRow* row) const;

  // Whether the first line is a row because no column has a name.
  bool first_line_is_row() const { return kind_ != TextTableKind::kJsonLines && !has_header_; }
  const std::string& name() const { return name_; }

 private:
  // Reads the next cells; false at the end.
  bool read_cells(TextTableRow* row, std::vector<std::string_view>* cells);
  bool read_line(std::string_view* line);
  void find_columns();
  void check_columns() const;
  size_t column_named(const TextColumn& column, const std::vector<std::string_view>& names) const;

  std::string_view text_;
  std::string name_;
  TextTableKind kind_;
  std::vector<TextColumn> columns_;
  size_t position_ = 0;  // in the text, of what is read by lines
  int64_t line_ = 0;
  std::unique_ptr<CsvReader> csv_;  // where cells may be quoted
  bool has_header_ = false;
  size_t width_ = 0;             // cells of a row; 0: not known yet
  std::vector<size_t> numbers_;  // of the columns; of those that are not wanted 0
  std::vector<std::string_view> read_;
};

}  // namespace lockstep
