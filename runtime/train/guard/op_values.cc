#include "runtime/train/guard/op_values.h"

#include <algorithm>

namespace lockstep::train {
namespace {

// The last op before `op` that writes the tensor; `op` itself if none does.
int64_t writer_of(const graph::Graph& graph, TensorId tensor, int64_t op) {
  for (int64_t at = op - 1; at >= 0; --at) {
    const std::vector<TensorId>& outputs = graph.ops[static_cast<size_t>(at)].outputs;
    if (std::ranges::find(outputs, tensor) != outputs.end()) return at;
  }
  return op;
}

}  // namespace

void OpValues::begin(const graph::Graph& graph) {
  for (const TensorId id : graph.ops[static_cast<size_t>(op_)].inputs) {
    const bool known =
        id == kNoTensor || graph[id].role == graph::Role::kConstant ||
        std::ranges::any_of(wanted_, [&](const Wanted& one) { return one.input.tensor == id; });
    if (!known) wanted_.push_back({{id, 0}, writer_of(graph, id, op_)});
  }
}

void OpValues::wrote(const graph::Graph& graph,
                     size_t op,
                     const graph::LaneContext& lane,
                     std::span<std::byte* const> tensors) {
  const auto number = static_cast<int64_t>(op);
  if (done_ || number > op_ || lane.first_sample != first_sample_) return;
  if (wanted_.empty()) begin(graph);
  for (Wanted& one : wanted_) {
    const TensorId id = one.input.tensor;
    if (one.writer != number) continue;
    one.input.largest = values_.largest_in(graph[id], tensors[static_cast<size_t>(id)]);
    if (graph[id].role == graph::Role::kParameter)
      largest_parameter_ = std::max(largest_parameter_, one.input.largest);
  }
  if (number != op_) return;
  done_ = true;
  for (const TensorId id : graph.ops[op].outputs) {
    if (id == kNoTensor || graph[id].role != graph::Role::kActivation) continue;
    if (graph[id].shape.rank() == 0 || graph[id].shape[0] != rows_) continue;
    if (graph[id].dtype == DType::kF64) continue;  // sums of a loss
    outputs_.push_back(
        {id, values_.parts_not_finite(graph[id], tensors[static_cast<size_t>(id)], rows_)});
  }
}

std::vector<OpValues::Input> OpValues::inputs() const {
  std::vector<Input> inputs;
  for (const Wanted& one : wanted_)
    if (one.input.largest > 0) inputs.push_back(one.input);
  return inputs;
}

std::vector<int64_t> OpValues::rows_not_finite(TensorId tensor) const {
  const auto found = std::ranges::find(outputs_, tensor, &Output::tensor);
  return found == outputs_.end() ? std::vector<int64_t>() : found->rows;
}

}  // namespace lockstep::train
