#include "runtime/cpu/flat/add_rows.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

namespace lockstep::cpu {

void add_rows(const collectives::AddedRows& rows, int64_t begin, int64_t end, float* to) {
  LOCKSTEP_CHECK(rows.dtype == DType::kF32);
  const auto* const x = reinterpret_cast<const float*>(rows.rows);
  const int64_t columns = rows.columns;
  // A column belongs to one thread; columns are divided at cache lines.
  constexpr int64_t kLine = 16;
  const int64_t lines = (columns + kLine - 1) / kLine;
  parallel_for(lines, grain_rows(rows.count * kLine), [&](int64_t first_line, int64_t last_line) {
    const int64_t left = first_line * kLine, right = std::min(columns, last_line * kLine);
    for (int64_t i = 0; i < rows.count; ++i) {
      const int64_t row = rows.ids[i] * columns;
      const int64_t first = std::max(row + left, begin), last = std::min(row + right, end);
      const float* const from = x + i * columns - row;
      for (int64_t k = first; k < last; ++k) to[k - begin] += from[k];
    }
  });
}

}  // namespace lockstep::cpu
