#pragma once
// What a run does where its config leaves it open, or where ranks or device do not allow what the
// config would: decided once, here, before the plan is made.

#include <cstdint>
#include <string>

#include "collectives/topology.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/op_set.h"
#include "runtime/graph/graph.h"

namespace lockstep {

enum class RunPurpose { kTrain, kEvaluate, kPredict };

struct RunDecisions {
  // The levels on which ranks exchange, and whether those of a node share memory.
  Topology topology;
  int zero_stage = 1;     // comm.zero_stage; 1 for one rank and where nothing is trained
  double bucket_mib = 0;  // of fp32 gradients
  // Checkpoints are written while training goes on, from a copy that the plan has memory for.
  bool snapshot = false;
};

// The type that a precision computes in.
DType compute_type(Precision precision);

// Rows of logits that a language model of so many tokens computes at a time: execution.loss_rows, or
// where that is 0 as many as have 256 MiB where this changes no bit; 0: all.
int64_t loss_rows_of(const ExecutionConfig& execution, int64_t vocabulary, const OpSet& ops);

// Whether training on ranks that are placed so shares memory within a node, where these can reach
// each other's.
bool wants_shared_memory(const CommConfig& comm, const Topology& placed, const OpSet& ops);

// `placed`: the ranks as they are placed on nodes; it shares memory where those of a node can reach
// each other's. The same on all ranks, and `bucket_mib` on any number of them.
RunDecisions decide(const RunConfig& config,
                    const Topology& placed,
                    RunPurpose purpose,
                    const OpSet& ops,
                    const Graph& training);

// One line for the user.
std::string to_text(const RunDecisions& decisions);

}  // namespace lockstep
