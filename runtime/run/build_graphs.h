#pragma once
// Stage 5 of a run's preparation: the graphs.

#include <cstdint>

#include "runtime/plan/plan.h"
#include "runtime/run/resolve.h"

namespace lockstep::run {

// Builds the graphs for `global_batch`, which is a multiple of the lanes, on so many ranks. Throws
// ConfigError if the device cannot run them.
plan::RunGraphs build_graphs(const ResolvedRun& run, int64_t global_batch, int ranks);

}  // namespace lockstep::run
