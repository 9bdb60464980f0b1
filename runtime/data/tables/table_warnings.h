#pragma once
// Warnings about tables: properties that look like mistakes but may be intended.

#include <span>
#include <string>
#include <vector>

#include "runtime/data/tables/table_columns.h"
#include "runtime/data/tables/table_encoder.h"

namespace lockstep::data {

// Warnings about a training file. Each names the column, the number of cells in question, the text
// and line of the first one, and a remedy. There is a warning if
// - a column was inferred to be categorical because of at most a tenth of its cells, or only
//   because of numbers beyond float32;
// - a categorical column has nearly as many values as rows, or was inferred although its values
//   are numbers in another notation (cell_notation.h);
// - a numeric column has no values;
// - a numeric column without a name, or with one such as "id", has another number in each row;
// - the header looks like a row.
// Of columns with the same cause, the first few are reported. `file` is read again to quote cells.
std::vector<std::string> find_warnings(const TableText& file,
                                       const TableConfig& config,
                                       const TableSchema& schema,
                                       const TableColumns& table,
                                       const TableEncoder& encoder);

// Warnings about values in categorical columns of the evaluation rows that no training row has, so
// that the model has not learned them. There is a warning for each such column, with the number of
// rows and the first value.
std::vector<std::string> find_unknown_categories(const TableText& file,
                                                 const TableSchema& schema,
                                                 const TableColumns& table,
                                                 std::span<const int64_t> rows,
                                                 const TableEncoder& encoder);

}  // namespace lockstep::data
