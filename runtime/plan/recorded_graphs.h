#pragma once
// What a device records of a step's gradients, as CUDA graphs.
//
// If lanes run in turn, each pattern of ShardingPlan::lane_patterns() is recorded once, for each
// length of samples that occurs: lanes of a pattern differ only in what is copied to and from fixed
// addresses outside of the graph. Otherwise whole steps are recorded, for each choice of a length
// for each lane.

#include <cstddef>
#include <vector>

#include "runtime/plan/plan.h"

namespace lockstep::plan {

// ShardingPlan::lane_patterns() of a rank. The first lane begins the gathers of parameters.
std::vector<int> recorded_lanes(const Plan& plan, int rank);

// How many recordings of whole steps a device makes, or none if that would be too many.
size_t recorded_steps(size_t lengths, size_t lanes);

}  // namespace lockstep::plan
