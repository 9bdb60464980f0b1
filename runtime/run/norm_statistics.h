#pragma once
// Norms that would see too few values to learn from.

#include <string>
#include <vector>

#include "runtime/config/run_config.h"
#include "runtime/graph/graph.h"

namespace lockstep::run {

// Checks the norms of a training graph. Throws ConfigError if a batch norm sees one value for each
// channel, or a group or instance norm one for each group: its outputs would not depend on its
// inputs.
// Returns a warning if batch norms see few values.
std::vector<std::string> check_norm_statistics(const RunConfig& config,
                                               const graph::Graph& training);

}  // namespace lockstep::run
