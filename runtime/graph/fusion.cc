#include "runtime/graph/fusion.h"

#include <algorithm>

namespace lockstep {
namespace {

std::vector<int> count_readers(const Graph& graph) {
  std::vector<int> readers(graph.tensors.size(), 0);
  for (const Op& op : graph.ops) {
    for (TensorId id : op.inputs) {
      if (id != kNoTensor) ++readers[static_cast<size_t>(id)];
    }
  }
  return readers;
}

}  // namespace

void fuse_activation_backward(Graph& graph) {
  const std::vector<int> readers = count_readers(graph);
  constexpr size_t kNone = ~size_t{0};
  std::vector<size_t> maker(graph.tensors.size(), kNone);  // the linear_backward of each d_x
  std::vector<bool> fused(graph.ops.size(), false);
  for (size_t i = graph.forward_ops; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (op.kind == OpKind::kLinearBackward && op.outputs[0] != kNoTensor)
      maker[static_cast<size_t>(op.outputs[0])] = i;
    if (op.kind != OpKind::kActivationBackward) continue;
    const auto d_y = static_cast<size_t>(op.inputs[0]);
    if (maker[d_y] == kNone || readers[d_y] != 1) continue;
    Op& linear = graph.ops[maker[d_y]];
    linear.inputs[3] = op.inputs[1];
    linear.outputs[0] = op.outputs[0];
    std::get<LinearBackwardAttributes>(linear.attributes).input_activation =
        op.as<ActivationAttributes>().activation;
    fused[i] = true;
  }
  size_t i = 0;
  std::erase_if(graph.ops, [&](const Op&) { return fused[i++]; });
}

}  // namespace lockstep
