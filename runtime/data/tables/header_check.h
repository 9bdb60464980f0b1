#pragma once
// Whether the first line of a table can be its header, and if not, what it probably is.

#include "runtime/data/tables/table_schema.h"

namespace lockstep::data {

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
