#pragma once
// Stage 6 of a run's preparation: the choices that the config leaves open, or that the ranks or the
// device do not allow as configured. They are made once, before the plan.

#include <cstdint>
#include <string>

#include "runtime/config/run_config.h"
#include "runtime/exec/op_set.h"
#include "runtime/graph/graph.h"
#include "runtime/plan/sharding_plan.h"
#include "runtime/run/open_data.h"

namespace lockstep::run {

struct RunDefaults {
  // The levels on which ranks exchange, and whether those of a node share memory; comm.zero_stage,
  // but 1 for one rank and if nothing is trained.
  plan::ShardingPlan sharding;
  std::string zero_stage_reason;  // see ZeroStageChoice
  double bucket_mib = 0;          // of fp32 gradients
  // Checkpoints are written while training goes on, from a copy that the plan has memory for.
  bool snapshot = false;
  bool records_work = true;  // as CUDA graphs, on GPUs
  bool adds_pairs = false;   // GPUs add two lanes at a time, in the least memory
};

// The type that a precision computes in; AUTO must be resolved (precision.h).
DType compute_type(Precision precision);
// The type of sums that are sent.
DType wire_type(CommConfig::WireType type);

// Rows of logits that a language model with this vocabulary computes at a time, 0 for all:
// execution.loss_rows or, if that is 0 and the split changes no bit, as many as take 256 MiB.
int64_t loss_rows_of(const ExecutionConfig& execution, int64_t vocabulary, const exec::OpSet& ops);

// Whether training on ranks with this placement shares memory within a node in this stage, provided
// that the ranks of a node can reach each other's memory.
bool wants_shared_memory(const CommConfig& comm,
                         int zero_stage,
                         const collectives::Topology& placed,
                         const exec::OpSet& ops);

// `placed`: the placement of the ranks on nodes; its shares_memory tells whether the ranks of a
// node can reach each other's memory. `link_gbit`: see choose_zero_stage(). The result is the same
// on all ranks, and `bucket_mib` also for any number of ranks.
RunDefaults choose_defaults(const RunConfig& config,
                            const collectives::Topology& placed,
                            RunPurpose purpose,
                            const exec::OpSet& ops,
                            const graph::Graph& training,
                            double link_gbit = 0);

// The choices in one line for the user.
std::string to_text(const RunDefaults& defaults);

}  // namespace lockstep::run
