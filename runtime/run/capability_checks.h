#pragma once
// The checks that need data, graphs or the plan. They reject what the device or the runtime cannot
// do, before anything is allocated. All throw ConfigError, which names the config's field.

#include <string>
#include <vector>

#include "runtime/run/build_graphs.h"

namespace lockstep::plan {
struct Plan;
}  // namespace lockstep::plan

namespace lockstep::run {

// A warning if the run would use none of a GPU's tensor cores, with the --set that changes it;
// otherwise empty. Every GPU that Lockstep runs on (compute capability 8.0 or newer) has tensor
// cores for BF16 and TF32.
// `needs_fp32`: see OpenedModel::reason_for_fp32().
std::string tensor_core_advice(const ExecutionConfig& execution,
                               bool needs_fp32,
                               const exec::OpSet& ops);

// Checks that the device runs every op of the graph.
void check_ops(const ModelConfig& model, const graph::Graph& graph, const exec::OpSet& ops);

// Checks, before the graphs are built, that the samples allow execution.length_buckets and
// train.lanes. Returns the node that mixes the samples of a batch: see OpenedModel::mixing_node().
std::string check_samples(const ResolvedRun& run);

// Checks that norms see enough values. Returns warnings about the run. `mixing`: the result of
// check_samples().
std::vector<std::string> check_graphs(const ResolvedRun& run,
                                      const plan::RunGraphs& graphs,
                                      const std::string& mixing);

// Checks, for training, the ZeRO stage, Muon, and the number of learning rates.
void check_plan(const ResolvedRun& run, const plan::Plan& plan);

}  // namespace lockstep::run
