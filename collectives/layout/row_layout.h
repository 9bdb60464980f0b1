#pragma once
// The gradients of tables of which a step touches few rows: those rows, for each token of the
// global batch. They are added to the sums of the tables' other gradients, in the order of the
// tokens, so the bits do not depend on which rank has which lane. Pure arithmetic.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/dtype.h"

namespace lockstep::collectives {

// The rows of one table, and where they lie in a buffer: the numbers (i32) of the rows that the
// tokens of all lanes have, lane by lane, then the rows.
struct RowTable {
  int64_t offset = 0;  // of the table in the flat buffer
  int64_t table_rows = 0, columns = 0;
  int64_t lane_rows = 0;  // tokens of a lane
  DType dtype = DType::kF32;
  size_t ids_at = 0, rows_at = 0;  // bytes

  int64_t elements() const { return table_rows * columns; }
  size_t lane_id_bytes() const { return static_cast<size_t>(lane_rows) * sizeof(int32_t); }
  size_t lane_row_bytes() const {
    return static_cast<size_t>(lane_rows * columns) * size_of(dtype);
  }
  size_t lane_bytes() const { return lane_id_bytes() + lane_row_bytes(); }
};

struct RowLayout {
  std::vector<RowTable> tables;
  size_t bytes = 0;  // of the buffer

  // Appends a table, whose place in the buffer it chooses.
  void append(RowTable table, int lanes);
  size_t lane_bytes() const;
};

// rows[i], `columns` elements of `dtype`, is to be added to row ids[i] of a table of floats, for
// increasing i below `count`.
struct AddedRows {
  const int32_t* ids = nullptr;
  const std::byte* rows = nullptr;
  DType dtype = DType::kF32;
  int64_t count = 0, columns = 0;
};

}  // namespace lockstep::collectives
