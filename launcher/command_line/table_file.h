#pragma once
// Writes tables as CSV, TSV or JSON lines.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/file.h"

namespace lockstep::launcher {

// An empty cell, a number or a text. Floats are written with as many digits as they need.
using TableCell = std::variant<std::monostate, int64_t, float, double, std::string_view>;

enum class TableStyle { kCsv, kTsv, kJsonLines };

// A field of CSV or TSV as RFC 4180 has it: in quotes if it has a delimiter, a quote, a line end,
// or a blank at an end, and quotes in it doubled. Bytes that are not UTF-8 become U+FFFD.
std::string table_field(std::string_view text, char delimiter);

// The names, each made different from those before it by appending " (2)", " (3)" and so on.
std::vector<std::string> unique_names(std::vector<std::string> names);

// Writes rows to a file. CSV and TSV: a line with the names of the columns, then a line for each
// row; lines end with LF; an empty cell is empty. JSON lines: an object for each row; an empty
// cell, NaN and infinity are null.
class TableFile {
 public:
  TableFile(const std::filesystem::path& path, TableStyle style, std::vector<std::string> columns);
  void add(std::span<const TableCell> row);  // (columns)
  void finish();                             // see FileWriter

 private:
  void add_cell(const TableCell& cell);
  void write_if_full(size_t bytes);

  FileWriter file_;
  TableStyle style_;
  std::vector<std::string> columns_;  // JSON lines: as JSON
  std::string text_;                  // not yet in the file
};

}  // namespace lockstep::launcher
