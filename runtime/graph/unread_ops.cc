#include "runtime/graph/unread_ops.h"

#include <algorithm>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/graph/graph.h"

namespace lockstep::graph {

void drop_unread_ops(Graph& graph) {
  LOCKSTEP_REQUIRE(graph.recomputed.empty() && graph.ops.size() == graph.forward_ops);
  std::vector<bool> read(graph.tensors.size(), false);
  read[static_cast<size_t>(graph.result)] = true;
  const auto is_read = [&](TensorId id) {
    return id != kNoTensor && read[static_cast<size_t>(id)];
  };
  const auto is_state = [&](TensorId id) {
    return id != kNoTensor && graph[id].role == Role::kState;
  };
  std::vector<Op> kept;
  for (auto op = graph.ops.rbegin(); op != graph.ops.rend(); ++op) {
    if (!std::ranges::any_of(op->outputs, is_read) && !std::ranges::any_of(op->inputs, is_state))
      continue;
    for (const TensorId input : op->inputs)
      if (input != kNoTensor) read[static_cast<size_t>(input)] = true;
    kept.push_back(std::move(*op));
  }
  std::ranges::reverse(kept);
  graph.ops = std::move(kept);
  graph.forward_ops = graph.ops.size();
}

}  // namespace lockstep::graph
