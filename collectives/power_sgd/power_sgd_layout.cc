#include "collectives/power_sgd/power_sgd_layout.h"

#include "runtime/base/error.h"

namespace lockstep::collectives {

PowerSgdLayout power_sgd_layout(const std::vector<FlatMatrix>& matrices,
                                int64_t elements,
                                int rank,
                                int groups) {
  constexpr int64_t kMinRatio = 2;
  PowerSgdLayout layout;
  layout.groups = groups;
  int64_t end = 0;  // of the last compressed matrix
  const auto keep_exact = [&](int64_t until) {
    if (until > end) layout.exact.push_back({end, until});
  };
  for (const FlatMatrix& matrix : matrices) {
    const auto [offset, rows, columns, padding] = matrix;
    LOCKSTEP_CHECK(offset >= end);
    if (kMinRatio * rank * (rows + columns) > rows * columns) continue;
    keep_exact(offset);
    end = offset + rows * columns + padding;
    layout.matrices.push_back(
        {offset, {rows, columns, rank}, layout.left_elements, layout.right_elements});
    layout.left_elements += rows * rank;
    layout.right_elements += columns * rank;
  }
  keep_exact(elements);
  layout.exact_at = layout.left_elements;
  for (const Range& range : layout.exact) layout.left_elements += range.size();
  return layout;
}

}  // namespace lockstep::collectives
