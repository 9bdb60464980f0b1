#include "runtime/graph/recompute.h"

#include <algorithm>

#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/unread_ops.h"

namespace lockstep::graph {

const Op& Recomputation::enter(size_t index, const Op& op) {
  for (const RecomputedBlock& block : builder_.graph().recomputed) {
    if (index < block.begin || index >= block.end) continue;
    if (index + 1 == block.end) append_copies(block);
    current_ = renamed(op);
    return current_;
  }
  return op;
}

void Recomputation::append_copies(const RecomputedBlock& block) {
  copies_.clear();
  for (size_t i = block.begin; i < block.end; ++i) {
    const Op op = builder_.graph().ops[i];  // a copy: appending reallocates the vector
    for (TensorId id : op.outputs) {
      if (id != kNoTensor) copies_[id] = builder_.new_copy(id);
    }
    builder_.append(renamed(op));
  }
}

Op Recomputation::renamed(Op op) const {
  const auto rename = [&](TensorId& id) {
    const auto copy = copies_.find(id);
    if (copy != copies_.end()) id = copy->second;
  };
  std::ranges::for_each(op.inputs, rename);
  std::ranges::for_each(op.outputs, rename);
  return op;
}

void Recomputation::drop_unused() {
  Graph& graph = builder_.graph_;
  const auto is_gradient = [&](TensorId id) {
    return id != kNoTensor && graph[id].role == Role::kParameterGradient;
  };
  drop_unread_ops(graph, graph.forward_ops, [&](const Op& op) {
    const bool keeps_rows =
        op.kind == OpKind::kEmbeddingBackward && op.as<EmbeddingAttributes>().rows_of != kNoTensor;
    return keeps_rows || std::ranges::any_of(op.outputs, is_gradient);
  });
}

}  // namespace lockstep::graph
