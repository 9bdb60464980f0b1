#pragma once
// Reads from a run's timeline how long its ops took, as measured ops for a hardware file.
//
// Besides the ops of the graph there are three names, which belong to no op:
//   lane_sum        what a lane takes beside its ops, because its gradients join the sums. Extents:
//                   1 if it is the rank's only lane, otherwise 2; the ranks that share memory; 1 if
//                   there are rows of tables to add
//   step            what a step takes beside its lanes and the update. Extents: those ranks
//   update.ADAMW    the optimizer's update; so with the name of each optimizer
// Their bytes are those of the gradients of a lane, and what an update reads and writes.

#include <string>
#include <vector>

#include "launcher/forecast/op_times.h"
#include "runtime/base/json.h"
#include "runtime/run/prepared_run.h"

namespace lockstep::forecast {

inline constexpr const char* kLaneSum = "lane_sum";
inline constexpr const char* kStepRest = "step";

// "update.ADAMW".
std::string update_name(const run::PreparedRun& prepared);
// What the update of one rank reads and writes.
double update_bytes(const run::PreparedRun& prepared);
// The ranks of a node that sum each other's gradients in place.
int64_t memory_sharers(const run::PreparedRun& prepared);
std::vector<int64_t> lane_extents(const run::PreparedRun& prepared);
// The gradients of one lane.
double gradient_bytes(const run::PreparedRun& prepared);
Arithmetic arithmetic_of(const run::PreparedRun& prepared);
// The work of one of the run's graphs. On CPUs the products of the loss leave out rows without a
// target, such as the tokens of a masked language model that are not hidden: their share is that of
// some samples. `gpu`: the GPU whose kernels are counted.
GraphWork work_of_run(const run::PreparedRun& prepared,
                      const graph::Graph& graph,
                      const std::optional<cuda::KernelGpu>& gpu = {});

// The medians over all lanes, ranks and steps but the first. `timeline`: a run of `prepared`.
// Throws ConfigError if it is of another run.
std::vector<MeasuredOp> measured_ops(const run::PreparedRun& prepared,
                                     const Json& timeline,
                                     int threads);

// Merges equal ops: the median of their times.
std::vector<MeasuredOp> merged(std::vector<MeasuredOp> ops);

}  // namespace lockstep::forecast
