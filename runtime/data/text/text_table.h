#pragma once
// Reads rows of tables of texts: TSV, CSV or JSON lines.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/text.h"
#include "runtime/data/tables/csv.h"
#include "runtime/data/text/json_lines.h"

namespace lockstep::data {

enum class TextTableKind { kCsv, kTsv, kJsonLines };

// The kind according to the file's name. Throws ConfigError, which names `field`, for other names.
TextTableKind text_table_kind(const std::string& path, const std::string& field);

// A column to read.
struct TextColumn {
  std::string field;  // the config field that names it
  std::string name;   // its name, or its index from 0; for JSON lines the name of the member
  // kOptional: cells that the file lacks are empty. kIgnored: all are empty.
  enum class Use { kRequired, kOptional, kIgnored } use = Use::kRequired;
};

struct TextTableRow {
  int64_t line = 0;                // on which it begins, from 1
  std::string problem;             // why it cannot be used, or ""
  std::vector<std::string> cells;  // (columns)
  std::string_view json;           // a line from which parse() makes the cells
};

// Reads the rows of a table. The first line of .tsv and .csv files has the names of the columns,
// unless all columns, even ignored ones, are given by index: then it is a row like the others.
class TextTable {
 public:
  // Borrows `text`. `name`: the file's, for messages. `quotes`: cells may be quoted, see CsvReader;
  // if false, each line is a row that is split at every delimiter. Throws DataError if a required
  // column is missing, if its name occurs twice in the first line, or if two of `columns` are the
  // same.
  TextTable(std::string_view text,
            std::string name,
            TextTableKind kind,
            std::vector<TextColumn> columns,
            bool quotes);

  // Reads the next row. Returns false at the end. Skips blank lines.
  bool next(TextTableRow* row);
  // Parses the cells of a row from next(), unless the row has a problem. May be called from any
  // thread.
  void parse(TextTableRow* row) const;

  // Whether the first line is a row because all columns are given by index.
  bool first_line_is_row() const { return kind_ != TextTableKind::kJsonLines && !has_header_; }
  const std::string& name() const { return name_; }

 private:
  // Reads the cells of the next row. Returns false at the end.
  bool read_cells(TextTableRow* row, std::vector<std::string_view>* cells);
  bool read_line(std::string_view* line);
  void find_columns();
  void require_columns() const;
  void find_column(TextColumn* column, const std::vector<std::string_view>& names);

  Lines lines_;  // unless cells may be quoted
  JsonRecords records_;
  std::string name_;
  TextTableKind kind_;
  std::vector<TextColumn> columns_;
  std::unique_ptr<CsvReader> csv_;  // only if cells may be quoted
  bool has_header_ = false;
  size_t width_ = 0;                    // cells per row; 0: not known yet
  std::vector<size_t> numbers_;         // (columns) their indices in the file; 0 if ignored
  std::vector<std::string_view> read_;  // cells of the current row
};

}  // namespace lockstep::data
