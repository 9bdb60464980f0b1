#pragma once
// Rows that are added to rows of a table.

#include "collectives/layout/row_layout.h"

namespace lockstep::cpu {

// See SliceMath::add_rows(). The rows are floats. The bits do not depend on the number of threads.
void add_rows(const collectives::AddedRows& rows, int64_t begin, int64_t end, float* to);

}  // namespace lockstep::cpu
