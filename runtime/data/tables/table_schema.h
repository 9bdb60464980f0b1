#pragma once
// The columns of a delimited table and their kinds.

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/data/tables/number_format.h"

namespace lockstep::data {

struct TableText {
  std::string_view text;  // decompressed; the results do not refer to it
  std::string name;       // of the file, for messages
};

enum class ColumnKind { kIgnored, kNumeric, kCategorical };

struct ColumnSchema {
  // column_key() of the header's name, or without a header the index. Empty: the header has none.
  std::string name;
  ColumnKind kind = ColumnKind::kNumeric;
  bool inferred = true;  // not in the config: numeric until a value is not a number
};

// The columns of a table. The schema is made from the training file, and the evaluation file must
// match it.
struct TableSchema {
  std::vector<ColumnSchema> columns;
  // The index of the target column, or of the first of several. If it is kIgnored, no targets are
  // read.
  size_t target = 0;
  std::vector<size_t> targets = {};  // all of them, in the order of the model
  // A file may lack the target column, if there is one, or single targets.
  bool target_optional = false;
  bool is_target(size_t column) const;
  bool named = true;     // by a header
  NumberFormat numbers;  // of all columns
  // For messages: "column 'income'", "column 14" or "column 0 (without a name)".
  std::string describe(size_t column) const;
  // For messages: the setting that leaves out a column, data.table.ignore: "income".
  std::string ignore(size_t column) const;
};

// Finds the columns of the training file and those that the config names. A name in the config is a
// column's name, or otherwise its number; "" stands for all columns without a name. Columns whose
// kind the config does not set are numeric until read_columns() has seen the values. `targets`: the
// columns to predict and their kinds, which are not inferred, except those of several that are
// numeric: these may turn out to have classes. Throws DataError if a name is not a column, if two
// columns have the same name, or if the first line cannot be the header.
TableSchema make_schema(const TableText& file,
                        const TableConfig& config,
                        const std::vector<std::pair<std::string, ColumnKind>>& targets);

// Throws DataError if a file's header differs from that of the training file, except for an
// optional target column. Returns whether it has that column.
bool check_header(const TableText& file, const TableConfig& config, const TableSchema& schema);

// How many of the first records are counted.
inline constexpr int kRecordsToCount = 100;

// The most frequent number of fields among the first kRecordsToCount records after `skip` records,
// or 0 if there are none.
size_t usual_width(const TableText& file, char delimiter, int skip = 0);

// Which file a message is about: an evaluation file must be written as the training file is.
enum class TableRole { kTraining, kEvaluation };

// Throws DataError if the first record does not fit the records below it: the file has another
// delimiter, or comments, or rows with a name or a delimiter more than the header.
void check_header_row(const TableText& file, char delimiter, TableRole role);

// The same for a table without a header: only the delimiter.
void check_delimiter(const TableText& file, char delimiter, TableRole role);

}  // namespace lockstep::data
