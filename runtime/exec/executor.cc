#include "runtime/exec/executor.h"

#include "runtime/base/error.h"

namespace lockstep {

Executor::Executor(const Graph& graph,
                   const ProgramPlan& plan,
                   const ParameterLayout& layout,
                   Backend& backend,
                   ExecutorMemory memory)
    : graph_(graph),
      plan_(plan),
      backend_(backend),
      arena_(memory.arena),
      tensors_(graph.tensors.size(), nullptr) {
  for (const Op& op : graph.ops) implementations_.push_back(&backend.ops().find(graph, op));
  for (size_t id = 0; id < tensors_.size(); ++id) {
    if (plan.tensor_offsets[id] != kNotInArena)
      tensors_[id] = memory.arena + plan.tensor_offsets[id];
  }
  LOCKSTEP_CHECK(graph.parameters.size() == layout.slots.size());
  for (size_t i = 0; i < layout.slots.size(); ++i) {
    const TensorId parameter = graph.parameters[i];
    LOCKSTEP_CHECK(graph[parameter].name == layout.slots[i].name &&
                   graph.shape(parameter) == layout.slots[i].shape);
    tensors_[static_cast<size_t>(parameter)] =
        memory.parameters +
        static_cast<size_t>(layout.slots[i].offset) * size_of(graph[parameter].dtype);
    if (graph[parameter].gradient != kNoTensor)
      gradients_.push_back({graph[parameter].gradient, layout.slots[i].offset});
  }
}

void Executor::run(const LaneContext& lane,
                   const std::byte* input,
                   const std::byte* target,
                   float* gradients,
                   Reducer* reducer,
                   std::byte* result) {
  // Inputs are only read; the table is one of mutable pointers because most tensors are not.
  tensors_[static_cast<size_t>(graph_.inputs[0])] = const_cast<std::byte*>(input);
  if (graph_.inputs.size() > 1)
    tensors_[static_cast<size_t>(graph_.inputs[1])] = const_cast<std::byte*>(target);
  for (const auto& [tensor, offset] : gradients_)
    tensors_[static_cast<size_t>(tensor)] = reinterpret_cast<std::byte*>(gradients + offset);

  backend_.begin_lane(lane);
  void* const device = backend_.launch_context();
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    if (reducer != nullptr) {
      for (int bucket : plan_.buckets_before_op[i]) reducer->bucket_needed(bucket);
    }
    implementations_[i]->run(OpCall(
        graph_, graph_.ops[i], tensors_.data(), arena_ + plan_.workspace_offsets[i], lane, device));
    if (reducer == nullptr) continue;
    for (int bucket : plan_.buckets_after_op[i]) reducer->bucket_ready(bucket);
  }
  backend_.copy(
      tensors_[static_cast<size_t>(graph_.result)], result, graph_[graph_.result].bytes());
}

}  // namespace lockstep
