#pragma once
// What looks wrong in a table, and may be meant all the same.

#include <string>
#include <vector>

#include "runtime/data/tables/table_columns.h"

namespace lockstep {

// The doubts about a training file, a line each that names the column, how many of its cells, and
// the first of these with line and text:
// - a column that nobody called categorical is so for at most a tenth of its cells, or for numbers
//   beyond float32 alone;
// - a numeric column has no value;
// - all rows have the same target.
// `targets`: of every row, NaN where it is not allowed. `file` is read again for what is doubtful.
std::vector<std::string> find_doubts(const TableText& file,
                                     const TableConfig& config,
                                     const TableSchema& schema,
                                     const TableColumns& table,
                                     const std::vector<double>& targets);

}  // namespace lockstep
