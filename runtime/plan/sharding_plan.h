#pragma once
// How a run is spread over ranks: their placement, their lanes, and what each of them holds.

#include <cstdint>
#include <numeric>
#include <vector>

#include "collectives/layout/sharding.h"
#include "collectives/layout/topology.h"

namespace lockstep::plan {

struct ShardingPlan {
  collectives::Topology topology;
  // What is sharded, so that a rank holds only its part: 0 to 3, as in DeepSpeed. Each stage
  // includes those before it; with one rank all are the same.
  int zero_stage = 1;
  int lanes = 1;
  int residual_groups = 0;  // groups of lanes whose sums leave residuals; 0: none
  // The library sums across the ranks, in an order of its own (comm.order: FAST).
  bool library_order = false;
  // A rank's lanes run together in training; see Graph::crosses_lanes().
  bool interleaved_lanes = false;
  // Otherwise the lanes of a rank that one pass computes.
  int lanes_per_pass = 1;
  // How many of a rank's lanes are added at once, 2, 4 or 8: see SumSchedule. It changes no bit.
  int lanes_at_once = 2;

  // Moments and master weights: a rank updates its part of the parameters, then all ranks gather
  // the parameters. Otherwise the summed gradients are gathered, and every rank updates all
  // parameters.
  bool shards_optimizer() const { return zero_stage >= 1; }
  // Gradients: each lane's gradients are summed across the ranks separately, bucket by bucket, in
  // memory that later buckets reuse. A rank keeps its part of the sum.
  bool shards_gradients() const { return zero_stage >= 2; }
  // Parameters: each program gathers a block of them ahead of the ops that read it, in memory that
  // other blocks use before and after.
  bool shards_parameters() const { return zero_stage >= 3; }
  // Whether the ranks of a node share one copy of the parameters.
  bool shares_parameters() const { return topology.shares_memory && shards_optimizer(); }
  // Whether ranks that share memory write their sums into each other's gradients.
  bool replicated_sums() const { return topology.shares_memory && !shards_optimizer(); }
  collectives::LaneShares shares() const {
    const bool each = shards_gradients() && topology.ranks() > 1;
    return {.lanes = lanes,
            .ranks = topology.ranks(),
            .unit = residual_groups > 0 ? lanes / residual_groups : 1,
            .order = interleaved_lanes ? collectives::LaneOrder::kTogether
                     : each            ? collectives::LaneOrder::kEachSummed
                                       : collectives::LaneOrder::kInTurn,
            .lanes_per_pass = lanes_per_pass,
            .width = lanes_at_once};
  }
  // Whether a device records the work of a step lane by lane. Otherwise it records the whole step:
  // lanes run together, or exchanges of one lane overlap with the next one.
  bool records_lanes() const {
    return shares().order == collectives::LaneOrder::kInTurn && lanes_per_pass == 1;
  }
  // Then: for each lane of a rank, the first of its lanes that a recording of the same work serves.
  // `begins`: see LaneShares::lane_patterns(). Every lane leaves residuals of its own, if any.
  std::vector<int> lane_patterns(int rank, bool begins) const {
    std::vector<int> patterns = shares().lane_patterns(rank, begins);
    if (residual_groups > 0) std::iota(patterns.begin(), patterns.end(), 0);
    return patterns;
  }
  // The lanes of a rank that run at the same time.
  int lanes_together() const { return interleaved_lanes ? shares().most() : lanes_per_pass; }
  // The index of element `flat` of a bucket among the elements that `rank` updates, which are
  // packed one range after the other.
  int64_t owned_index_of(int rank, const collectives::Range& bucket, int64_t flat) const {
    if (!shards_optimizer()) return flat;
    const collectives::Range part =
        collectives::part_of(bucket, topology.part_of(rank), topology.ranks());
    return bucket.begin / topology.ranks() + flat - part.begin;
  }
};

}  // namespace lockstep::plan
