#pragma once
// What a device cannot do is refused by the name of the config's field, before anything is
// allocated. All of these throw ConfigError.

#include <string>

#include "collectives/topology.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/op_set.h"
#include "runtime/graph/graph.h"
#include "runtime/plan/plan.h"

namespace lockstep {

// The number formats to compute in.
void check_precision(const ExecutionConfig& execution, const OpSet& ops);

// What to report of a run that would use none of a GPU's tensor cores, with the --set that changes
// it; empty otherwise. Every GPU that Lockstep runs on, of compute capability 8.0 or newer, has them
// for BF16 and for TF32. Throws nothing.
std::string tensor_core_advice(const RunConfig& config, const OpSet& ops);

// As many ranks as meet in one sum of the tree, where they are placed so.
void check_tree(const CommConfig& comm, const Topology& placed, const OpSet& ops);

// Every op of the model's graph.
void check_ops(const ModelConfig& model, const Graph& graph, const OpSet& ops);

// train.lanes: 1 if samples of a batch mix at `node`, which is empty if they do not: see mixing_node().
void check_lanes(const TrainConfig& train, const std::string& node);

// The ZeRO stage: lanes that run together are summed together.
void check_zero_stage(const CommConfig& comm, const Plan& plan);

// Muon: it has a matrix to take.
void check_muon(const Plan& plan);

// execution.length_buckets: samples must say where they end. `have_documents`: the rows of
// packed_tokens.h.
void check_samples_have_lengths(const ExecutionConfig& execution, bool have_documents);

// The optimizer's constants: a layer-wise one has a rate for every tensor, of which a device holds
// so many.
void check_update_groups(const OptimizerConfig& optimizer,
                         const ParameterLayout& layout,
                         const OpSet& ops);

}  // namespace lockstep
