#pragma once
// Stage 5 of a run's preparation: the graphs.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/run/resolve.h"

namespace lockstep {

struct RunGraphs {
  Graph training;
  std::optional<Graph> evaluation;  // ends in the loss or, to predict, in the network's output
  // For the lengths of execution.length_buckets. An evaluation has none if its result would have
  // another shape at these lengths.
  std::vector<Graph> length_bucket_training, length_bucket_evaluation;
};

// Builds the graphs for `global_batch`, which is a multiple of the lanes. Throws ConfigError if the
// device cannot run them.
RunGraphs build_graphs(const ResolvedRun& run, int64_t global_batch);

}  // namespace lockstep
