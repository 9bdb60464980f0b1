#pragma once
// A delimited table read into columns: which columns there are, what kind each is, which records
// are bad.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep {

struct TableText {
  std::string_view text;  // decompressed; need not outlive the reading
  std::string name;       // of the file, for messages
};

enum class ColumnKind { kIgnored, kNumeric, kCategorical };

// A cell or a name in a message: in quotes, shortened, its control characters escaped.
std::string quote_cell(std::string_view cell);

struct ColumnSchema {
  std::string name;  // from the header, or the number
  ColumnKind kind = ColumnKind::kNumeric;
  bool inferred = true;  // numeric only until a value says otherwise
};

// The columns of a table. Made from the training file; the evaluation file must fit it.
struct TableSchema {
  std::vector<ColumnSchema> columns;
  // Its number. The target column is never inferred; where it is kIgnored no targets are read.
  size_t target = 0;
  // "income" or "column 14".
  std::string describe(size_t column) const;
};

struct TableColumn {
  std::vector<double> numbers;     // (rows), numeric columns; NaN where missing
  std::vector<int32_t> ids;        // (rows), categorical columns: into `names`; -1 where missing
  std::vector<std::string> names;  // in order of appearance
};

// One record of the file, good or bad.
struct TableRecord {
  int64_t line = 0;
  int64_t row = -1;  // into the columns; -1: bad
};

// What the bad_records policy does with the records of one file.
class BadRecordLog {
 public:
  BadRecordLog(const DataConfig& config, std::string file_name);
  // Counts a bad record, or throws DataError "FILE:LINE: problem" when the policy is to fail.
  void add(int64_t line, const std::string& problem);
  // Throws DataError when more of `records` are bad than data.max_bad_fraction allows.
  void check_fraction(int64_t records) const;
  int64_t count() const { return count_; }
  // Bad records since the last call that a good one takes the place of.
  int64_t take_waiting() { return std::exchange(waiting_, 0); }

 private:
  BadRecords policy_;
  float max_fraction_;
  std::string file_name_;
  int64_t count_ = 0, waiting_ = 0;
  int64_t first_line_ = 0;
  std::string first_;
};

struct TableColumns {
  std::vector<TableColumn> columns;  // as in the schema; ignored ones stay empty
  std::vector<TableRecord> records;  // in file order
  int64_t rows = 0;
};

// Finds out what columns the training file has and resolves the names in the config. The kinds of
// columns that the config does not force stay numeric until read_columns() has seen the values.
// Throws DataError when a name is not a column, or two columns have the same name.
TableSchema make_schema(const TableText& file, const TableConfig& config, ColumnKind target_kind);

// Reads all records. With `infer`, an inferred column in which some value is not a number becomes
// categorical in `schema`; otherwise such a record is bad. Also bad: malformed quotes, another
// number of fields than the schema has columns, a missing target. Bad records go to `bad` and get
// row -1. Where no targets are read the file need not have their column. Throws DataError on what
// cannot be read at all: UTF-16, a header that does not fit, an unclosed quote.
TableColumns read_columns(const TableText& file,
                          const TableConfig& config,
                          bool infer,
                          TableSchema* schema,
                          BadRecordLog* bad);

}  // namespace lockstep
