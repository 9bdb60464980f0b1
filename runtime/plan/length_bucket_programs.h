#pragma once
// The plans of graphs for samples shorter than the context (execution.length_buckets). Each lane
// runs the shortest program that its samples fit into, or the one of the whole context.

#include <algorithm>
#include <vector>

#include "runtime/plan/plan.h"

namespace lockstep {

// Lays out a graph that has the same ops and parameters as `full_graph`, in the same order, but
// shorter samples. All such programs share the flat buffers and the exchanges, so everything else
// in the plan (the buckets that an op finishes, the parameters that it waits for) is copied from
// `full_plan`. Graphs whose ops differ are a broken invariant.
ProgramPlan plan_length_bucket(const Graph& graph,
                               const Graph& full_graph,
                               const ProgramPlan& full_plan,
                               const WorkspaceBytes& workspace_bytes);

// The arena of the program that needs most. All of them run in one arena.
size_t max_arena_bytes(const ProgramPlan& full_plan,
                       const std::vector<ProgramPlan>& length_buckets);

}  // namespace lockstep
