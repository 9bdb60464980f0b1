#pragma once
// Reads a delimited table into columns, infers their kinds, and finds bad records.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep {

struct TableText {
  std::string_view text;  // decompressed; the results do not refer to it
  std::string name;       // of the file, for messages
};

enum class ColumnKind { kIgnored, kNumeric, kCategorical };

// A cell or a name for a message: in quotes, truncated, with control characters escaped.
std::string quote_cell(std::string_view cell);

struct ColumnSchema {
  std::string name;  // from the header, otherwise the index
  ColumnKind kind = ColumnKind::kNumeric;
  bool inferred = true;  // not in the config: numeric until a value is not a number
};

// The columns of a table. The schema is made from the training file, and the evaluation file must
// match it.
struct TableSchema {
  std::vector<ColumnSchema> columns;
  // The index of the target column, whose kind is never inferred. If it is kIgnored, no targets are
  // read.
  size_t target = 0;
  // For messages: "column 'income'" or "column 14".
  std::string describe(size_t column) const;
};

struct TableColumn {
  std::vector<double> numbers;     // (rows), of a numeric column; NaN: missing
  std::vector<int32_t> ids;        // (rows), of a categorical column: index in `names`; -1: missing
  std::vector<std::string> names;  // of a categorical column, in order of appearance
};

// One record of the file, good or bad.
struct TableRecord {
  int64_t line = 0;
  int64_t row = -1;  // index in the columns; -1: bad
};

// Applies the policy data.bad_records to the records of one file.
class BadRecordLog {
 public:
  BadRecordLog(const DataConfig& config, std::string file_name);
  // Counts a bad record. With the policy FAIL, throws DataError "FILE:LINE: problem".
  void add(int64_t line, const std::string& problem);
  // Throws DataError if more of `records` are bad than data.max_bad_fraction allows.
  void require_fraction(int64_t records) const;
  int64_t count() const { return count_; }
  // How many additional copies of a good record must be added: with REPLACE, one for each bad
  // record since the last call.
  int64_t take_pending() { return std::exchange(pending_, 0); }

 private:
  BadRecords policy_;
  float max_fraction_;
  std::string file_name_;
  int64_t count_ = 0, pending_ = 0;
  int64_t first_line_ = 0;
  std::string first_;
};

struct TableColumns {
  std::vector<TableColumn> columns;  // parallel to the schema's; ignored ones are empty
  std::vector<TableRecord> records;  // in file order
  int64_t rows = 0;
};

// Finds the columns of the training file and the indices of those that the config names. Columns
// whose kind the config does not set are numeric until read_columns() has seen the values. Throws
// DataError if a name is not a column, or if two columns have the same name.
TableSchema make_schema(const TableText& file, const TableConfig& config, ColumnKind target_kind);

// Reads all records. With `infer`, an inferred column with a value that is not a number becomes
// categorical in *schema; without, such a record is bad. A record is also bad if its quotes are
// malformed, if it has another number of fields than the schema, or if its target is missing. Bad
// records are added to *bad and get row -1. If no targets are read, the file need not have their
// column. Throws DataError if the file as a whole cannot be read: it is UTF-16, its header does not
// match, or a quote is never closed.
TableColumns read_columns(const TableText& file,
                          const TableConfig& config,
                          bool infer,
                          TableSchema* schema,
                          BadRecordLog* bad);

}  // namespace lockstep
