#include "runtime/graph/unread_ops.h"

#include <algorithm>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/graph/graph.h"

namespace lockstep::graph {

void drop_unread_ops(Graph& graph, size_t first, const std::function<bool(const Op&)>& is_result) {
  std::vector<bool> read(graph.tensors.size(), false);
  std::vector<bool> dropped(graph.ops.size(), false);
  const auto is_read = [&](TensorId id) {
    return id != kNoTensor && read[static_cast<size_t>(id)];
  };
  for (size_t i = graph.ops.size(); i-- > first;) {
    const Op& op = graph.ops[i];
    dropped[i] = !is_result(op) && !std::ranges::any_of(op.outputs, is_read);
    if (dropped[i]) continue;
    for (const TensorId input : op.inputs)
      if (input != kNoTensor) read[static_cast<size_t>(input)] = true;
  }
  graph.drop_ops(dropped);
}

void drop_unread_ops(Graph& graph) {
  LOCKSTEP_REQUIRE(graph.recomputed.empty() && graph.ops.size() == graph.forward_ops);
  const auto is_state = [&](TensorId id) {
    return id != kNoTensor && graph[id].role == Role::kState;
  };
  drop_unread_ops(graph, 0, [&](const Op& op) {
    return std::ranges::count(op.outputs, graph.result) > 0 ||
           std::ranges::any_of(op.inputs, is_state);
  });
  graph.forward_ops = graph.ops.size();
}

}  // namespace lockstep::graph
