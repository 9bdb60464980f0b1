#include "runtime/plan/shorter_programs.h"

#include "runtime/base/error.h"

namespace lockstep {

ProgramPlan plan_shorter(const Graph& shorter,
                         const Graph& whole,
                         const ProgramPlan& plan_of_whole,
                         const WorkspaceBytes& workspace_bytes) {
  LOCKSTEP_CHECK(shorter.ops.size() == whole.ops.size() &&
                 shorter.forward_ops == whole.forward_ops &&
                 shorter.parameters == whole.parameters && shorter.inputs == whole.inputs);
  for (size_t i = 0; i < whole.ops.size(); ++i) {
    const Op &op = shorter.ops[i], &other = whole.ops[i];
    LOCKSTEP_CHECK(
        op.kind == other.kind && op.inputs == other.inputs && op.outputs == other.outputs,
        "op {} '{}' differs from that of the whole context ",
        i,
        op.name);
  }
  const ProgramPlan placed = plan_program(shorter, workspace_bytes);
  ProgramPlan plan = plan_of_whole;
  plan.placements = placed.placements;
  plan.tensor_offsets = placed.tensor_offsets;
  plan.workspace_offsets = placed.workspace_offsets;
  plan.arena_bytes = placed.arena_bytes;
  plan.constants = placed.constants;
  plan.constant_bytes = placed.constant_bytes;
  plan.flops = placed.flops;
  return plan;
}

size_t most_arena_bytes(const ProgramPlan& whole, const std::vector<ProgramPlan>& shorter) {
  size_t most = whole.arena_bytes;
  for (const ProgramPlan& plan : shorter) most = std::max(most, plan.arena_bytes);
  return most;
}

}  // namespace lockstep
