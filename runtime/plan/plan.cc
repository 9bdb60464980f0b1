// Makes the plan of a run. Each decision depends only on those before it:
//
//    layout      the flat order of parameters, and its cuts                   layout.cc
//    programs    the arena of activations, which op completes a bucket        arena.cc
//                ZeRO 2 and 3: buckets share memory                           gradient_memory.cc
//                when parameters or sums are gathered                         gathers.cc
//                the same with smaller arenas, for short samples       length_bucket_programs.cc
//    traffic     which rank orthogonalizes which matrix                       muon_layout.cc
//                which averages a rank adds up                                adafactor_layout.cc
//                the bytes that are sent                                      traffic_plan.cc
//    sums        how many lanes are added at once                             memory_rows.cc
//    memory      derived from all of the above                                memory_rows.cc
//
//    ZeRO stage   sharded (1/ranks on a rank)     gathered
//    0            nothing                         the summed gradients, unless ranks share memory
//    1            moments, master weights         the parameters, during the next forward pass
//    2            and the summed gradients        the same
//    3            and the parameters              each block, whenever a program needs it
//
// Invariants: make_plan() is a pure function of the graphs and options, so all ranks, and `lockstep
// plan` on a machine without the device, compute the same plan. `memory` lists exactly the
// allocations of a run.
#include "runtime/plan/plan.h"

#include <algorithm>

#include "runtime/base/moment_block.h"
#include "runtime/plan/plan_parts.h"

namespace lockstep::plan {
namespace {

void place_constants(ProgramPlans& programs) {
  const auto place = [&](ProgramPlan& program) {
    for (PlacedTensor& constant : program.constants) constant.offset += programs.constant_bytes;
    programs.constant_bytes += program.constant_bytes;
  };
  place(programs.training);
  place(programs.evaluation);
  for (auto* length_buckets :
       {&programs.length_bucket_training, &programs.length_bucket_evaluation})
    for (ProgramPlan& program : *length_buckets) place(program);
}

}  // namespace

Plan make_plan(const RunGraphs& graphs,
               const PlanOptions& options,
               const WorkspaceBytes& workspace_bytes) {
  const auto& [training, evaluation, length_bucket_training, length_bucket_evaluation, joint] =
      graphs;
  Plan plan;
  ShardingPlan& sharding = plan.sharding = options.sharding;
  sharding.interleaved_lanes = training.crosses_lanes();
  ParameterLayout& layout = plan.layout =
      make_layout(training,
                  sharding.lanes,
                  static_cast<int64_t>(options.bucket_mib * 1024 * 1024 / sizeof(float)),
                  sharding.topology.ranks(),
                  /*short_end=*/options.device.has_value(),
                  std::max<int64_t>(options.optimizer.block_moments > 0 ? kMomentBlock : 0,
                                    collectives::kSliceAlignment));

  const OptimizerConfig* const optimizer = options.optimizer.config;
  layout.by_parts =
      optimizer != nullptr && std::holds_alternative<AdafactorConfig>(optimizer->kind);

  ProgramPlans& programs = plan.programs;
  programs.training = plan_program(
      training,
      [&](const graph::Graph& graph, const graph::Op& op) {
        const size_t bytes = workspace_bytes(graph, op);
        if (!joint) return bytes;
        return std::max(
            bytes,
            workspace_bytes(*joint, joint->ops[static_cast<size_t>(&op - graph.ops.data())]));
      },
      sharding.lanes_together());
  programs.training.buckets_after_op = bucket_schedule(training, layout);
  if (sharding.shards_gradients()) share_gradient_memory(training, layout, programs.training);
  if (evaluation) programs.evaluation = plan_program(*evaluation, workspace_bytes);
  if (sharding.shards_parameters()) {
    gather_blocks(training, layout, programs.training);
    if (evaluation) gather_blocks(*evaluation, layout, programs.evaluation);
  } else if (sharding.shards_optimizer()) {
    gather_in_place(training, layout, programs.training);
  } else {
    plan.traffic.sum_gathers = gather_sums(training, plan, options, programs.training);
  }
  for (const graph::Graph& graph : length_bucket_training)
    programs.length_bucket_training.push_back(
        plan_length_bucket(graph, training, programs.training, workspace_bytes));
  for (const graph::Graph& graph : length_bucket_evaluation)
    programs.length_bucket_evaluation.push_back(
        plan_length_bucket(graph, *evaluation, programs.evaluation, workspace_bytes));
  place_constants(programs);

  plan.traffic = plan_traffic(training, plan, options);
  sharding.lanes_at_once = lanes_at_once(training, plan, options);
  plan.memory = plan_memory(training, plan, options);
  return plan;
}

}  // namespace lockstep::plan
