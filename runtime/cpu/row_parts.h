#pragma once
// Sums over rows whose order does not depend on the number of threads.

#include <algorithm>
#include <cstdint>

namespace lockstep::cpu {

// Rows divided into parts whose sums are formed by themselves, on whatever threads, and then added
// in the order of the parts: how many there are depends on the rows alone.
struct RowParts {
  RowParts(int64_t rows, int64_t most, int64_t least_rows)
      : rows_each(std::max(least_rows, (rows + most - 1) / most)),
        count(std::max<int64_t>(1, (rows + rows_each - 1) / rows_each)) {}
  int64_t rows_each;
  int64_t count;  // at least one
};

}  // namespace lockstep::cpu
