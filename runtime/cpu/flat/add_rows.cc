#include "runtime/cpu/flat/add_rows.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/half.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"

namespace lockstep::cpu {
namespace {

template <typename T>
void add_rows_of(const collectives::AddedRows& rows, int64_t begin, int64_t end, float* to) {
  const auto* const x = reinterpret_cast<const T*>(rows.rows);
  const int64_t columns = rows.columns;
  // A column belongs to one thread; columns are divided at cache lines.
  constexpr int64_t kLine = 16;
  const int64_t lines = (columns + kLine - 1) / kLine;
  parallel_for(lines, grain_rows(rows.count * kLine), [&](int64_t first_line, int64_t last_line) {
    const int64_t left = first_line * kLine, right = std::min(columns, last_line * kLine);
    for (int64_t i = 0; i < rows.count; ++i) {
      const int64_t row = rows.ids[i] * columns;
      const int64_t first = std::max(row + left, begin), last = std::min(row + right, end);
      const T* const from = x + i * columns - row;
      for (int64_t k = first; k < last; ++k) to[k - begin] += to_float(from[k]);
    }
  });
}

}  // namespace

void add_rows(const collectives::AddedRows& rows, int64_t begin, int64_t end, float* to) {
  LOCKSTEP_CHECK(rows.dtype == DType::kF32 || rows.dtype == DType::kBF16);
  rows.dtype == DType::kF32 ? add_rows_of<float>(rows, begin, end, to)
                            : add_rows_of<BFloat16>(rows, begin, end, to);
}

}  // namespace lockstep::cpu
