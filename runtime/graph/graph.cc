#include "runtime/graph/graph.h"

#include <algorithm>

namespace lockstep {

int64_t Graph::parameter_count() const {
  int64_t count = 0;
  for (TensorId id : parameters) count += (*this)[id].shape.elements();
  return count;
}

bool Graph::crosses_lanes() const {
  return std::any_of(
      ops.begin(), ops.end(), [](const Op& op) { return op.kind == OpKind::kGatherLanes; });
}

}  // namespace lockstep
