#pragma once
// The device memory that the driver takes for a step's CUDA graphs.

#include <cstddef>

#include "runtime/graph/graph.h"
#include "runtime/plan/plan.h"

namespace lockstep {

// An upper estimate of the nodes (kernels, copies, exchanges) of one recording of a step.
size_t recorded_nodes(const Graph& training, const Plan& plan);

// An upper estimate for `recordings` of them. A driver takes 2.7 KB a node on one GPU and 10.5 KB
// on another, by public measurements with drivers for CUDA 12.4 and newer; older ones take several
// times as much.
size_t recorded_bytes(const Graph& training, const Plan& plan, size_t recordings);

}  // namespace lockstep
