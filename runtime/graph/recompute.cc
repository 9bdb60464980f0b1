#include "runtime/graph/recompute.h"

#include <algorithm>

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

// From the last op to the first: an op is needed if it writes a gradient, or a tensor that a later
// op reads.
void Recomputation::drop_unused() {
  Graph& graph = builder_.graph_;
  std::vector<bool> read(graph.tensors.size(), false);
  std::vector<Op> kept;
  for (size_t i = graph.ops.size(); i-- > graph.forward_ops;) {
    Op& op = graph.ops[i];
    const bool needed = std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId id) {
      return id != kNoTensor &&
             (read[static_cast<size_t>(id)] || graph[id].role == Role::kParameterGradient);
    });
    if (!needed) continue;
    for (TensorId id : op.inputs) {
      if (id != kNoTensor) read[static_cast<size_t>(id)] = true;
    }
    kept.push_back(std::move(op));
  }
  graph.ops.resize(graph.forward_ops);
  std::move(kept.rbegin(), kept.rend(), std::back_inserter(graph.ops));
}

}  // namespace lockstep::graph
