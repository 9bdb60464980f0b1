#pragma once
// What looks wrong in a table, and may be meant all the same.

#include <span>
#include <string>
#include <vector>

#include "runtime/data/tables/table_columns.h"
#include "runtime/data/tables/table_encoder.h"

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

// Values of categorical columns that no training row has, which the model has so learned nothing of:
// a line for each column, with how many rows have such, and the first of them.
std::vector<std::string> find_unknown_categories(const TableText& file,
                                                 const TableSchema& schema,
                                                 const TableColumns& table,
                                                 std::span<const int64_t> rows,
                                                 const TableEncoder& encoder);

}  // namespace lockstep
