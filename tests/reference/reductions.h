#pragma once
// The reference of `reduce`, for its own test and for those of ops whose gradients use it.

#include <algorithm>
#include <cmath>

#include "runtime/graph/ops/reduce.h"

namespace lockstep::test {

inline double reduction_value(graph::ReduceKind kind, double sum, double x) {
  switch (kind) {
    case graph::ReduceKind::kMax:
      return std::isnan(sum) || std::isnan(x) ? sum + x : std::max(sum, x);
    case graph::ReduceKind::kMin:
      return std::isnan(sum) || std::isnan(x) ? sum + x : std::min(sum, x);
    case graph::ReduceKind::kProduct: return sum * x;
    default: return sum + x;
  }
}

// Element by element, in double precision.
inline void reduce_reference(const graph::OpCall& call) {
  const graph::ReduceForward<double> op{call};
  auto* const y = static_cast<double*>(op.y);
  for (int64_t i = 0; i < op.loops.kept.count; ++i) {
    const double* x = op.x + op.loops.kept.offset(i);
    y[i] = x[0];
    for (int64_t r = 1; r < op.loops.reduced.count; ++r)
      y[i] = reduction_value(op.kind, y[i], x[op.loops.reduced.offset(r)]);
    if (op.kind == graph::ReduceKind::kMean) y[i] /= static_cast<double>(op.loops.reduced.count);
  }
}

}  // namespace lockstep::test
