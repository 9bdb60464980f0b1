#pragma once
// The plans of graphs that compute shorter samples than the whole context
// (execution.length_buckets): beside a whole program, of which each lane takes the one that its
// samples fit into.

#include <algorithm>
#include <vector>

#include "runtime/plan/plan.h"

namespace lockstep {

// Lays out a graph that has the ops and parameters of `whole` in the same order, and shorter
// samples. What goes by ops, the buckets that they finish and the parameters that they wait for, is
// that of `plan_of_whole`: all graphs share flat buffers and exchanges. That ops differ is a broken
// invariant.
ProgramPlan plan_shorter(const Graph& shorter,
                         const Graph& whole,
                         const ProgramPlan& plan_of_whole,
                         const WorkspaceBytes& workspace_bytes);

// Of the program that needs most: all of them run in one arena.
size_t most_arena_bytes(const ProgramPlan& whole, const std::vector<ProgramPlan>& shorter);

}  // namespace lockstep
