#include "runtime/base/error.h"
#include "runtime/plan/plan_parts.h"

namespace lockstep::plan {

ProgramPlan plan_length_bucket(const graph::Graph& graph,
                               const graph::Graph& full_graph,
                               const ProgramPlan& full_plan,
                               const WorkspaceBytes& workspace_bytes) {
  LOCKSTEP_CHECK(graph.ops.size() == full_graph.ops.size() &&
                 graph.forward_ops == full_graph.forward_ops &&
                 graph.parameters == full_graph.parameters && graph.inputs == full_graph.inputs);
  for (size_t i = 0; i < full_graph.ops.size(); ++i) {
    const graph::Op &op = graph.ops[i], &other = full_graph.ops[i];
    LOCKSTEP_CHECK(
        op.kind == other.kind && op.inputs == other.inputs && op.outputs == other.outputs,
        "op {} '{}' differs from that of the whole context ",
        i,
        op.name);
  }
  const ProgramPlan placed = plan_program(graph, workspace_bytes);
  ProgramPlan plan = full_plan;
  plan.placements = placed.placements;
  plan.tensor_offsets = placed.tensor_offsets;
  plan.workspace_offsets = placed.workspace_offsets;
  plan.arena_bytes = placed.arena_bytes;
  plan.constants = placed.constants;
  plan.constant_bytes = placed.constant_bytes;
  plan.flops = placed.flops;
  return plan;
}

}  // namespace lockstep::plan
