#pragma once
// Norms that would see too few values to learn from.

#include <string>
#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/graph/graph.h"

namespace lockstep {

// Refuses norms of a training graph that see one value: a batch norm one of a channel, a group or instance norm one of
// a group. They would give the same whatever their input. Returns a warning if batch norms see few. Throws ConfigError.
std::vector<std::string> check_norm_statistics(const RunConfig& config, const Graph& training);

}  // namespace lockstep
