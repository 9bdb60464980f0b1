#pragma once
// Sums over rows whose order does not depend on the number of threads.

#include <algorithm>
#include <cstdint>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

namespace lockstep::cpu {

// A division of rows into parts. Each part is summed separately, on any thread, and the sums are
// then added in the order of the parts. The number of parts depends on the number of rows alone.
struct RowParts {
  RowParts(int64_t rows, int64_t max_parts, int64_t min_rows)
      : rows(rows),
        rows_each(std::max(min_rows, (rows + max_parts - 1) / max_parts)),
        count(std::max<int64_t>(1, (rows + rows_each - 1) / rows_each)) {}
  int64_t rows;
  int64_t rows_each;
  int64_t count;  // at least one
};

// Calls body(part, its first row, the end of its rows) for each part, on all threads. A row has
// `columns` elements.
template <typename Body>
void for_each_part(const RowParts& parts, int64_t columns, Body&& body) {
  parallel_for(
      parts.count, grain_rows(parts.rows_each * columns), [&](int64_t first, int64_t last) {
        for (int64_t part = first; part < last; ++part) {
          const int64_t begin = part * parts.rows_each;
          body(part, begin, std::min(parts.rows, begin + parts.rows_each));
        }
      });
}

// The parts for the backward pass of a norm of rows.
inline RowParts row_norm_parts(int64_t rows) {
  constexpr int64_t kMaxParts = 128, kMinRows = 16;
  return {rows, kMaxParts, kMinRows};
}

// sum (columns) = the parts' sums, `stride` floats apart in `partial`, added in the order of the
// parts, on all threads.
void sum_parts(
    const float* partial, const RowParts& parts, int64_t stride, int64_t columns, float* sum);

}  // namespace lockstep::cpu
