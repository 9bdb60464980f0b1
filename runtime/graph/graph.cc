#include "runtime/graph/graph.h"

#include <algorithm>

namespace lockstep::graph {

bool Graph::crosses_lanes() const {
  return std::any_of(
      ops.begin(), ops.end(), [](const Op& op) { return op.kind == OpKind::kGatherLanes; });
}

}  // namespace lockstep::graph
