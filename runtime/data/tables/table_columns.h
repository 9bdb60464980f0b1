#pragma once
// Reads a delimited table into columns, infers their kinds, and finds bad records.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/data/tables/table_schema.h"

namespace lockstep::data {

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

// Reads all records. With `infer`, an inferred column with a value that is not a number becomes
// categorical in *schema; without, such a record is bad. A record is also bad if its quotes are
// malformed, if it has another number of fields than the schema, or if its target is missing. Bad
// records are added to *bad and get row -1. If targets are optional, a file without their column
// makes it kIgnored in *schema, and a target that is missing or not a number is no error. Throws
// DataError if the file as a whole cannot be read: it is UTF-16, its header does not match, or a
// quote is never closed.
TableColumns read_columns(const TableText& file,
                          const TableConfig& config,
                          bool infer,
                          TableSchema* schema,
                          BadRecordLog* bad);

}  // namespace lockstep::data
