#pragma once
// The memory layout of a SmallAllReduce. Pure arithmetic.

#include <cstdint>
#include <vector>

#include "collectives/layout/sharding.h"
#include "collectives/layout/topology.h"

namespace lockstep::collectives {

struct SmallAllReduceLayout {
  int lanes = 1;
  Topology topology;     // shares no memory
  int64_t elements = 0;  // of a lane's buffer

  LaneShares shares() const { return {.lanes = lanes, .ranks = topology.ranks()}; }
  // Elements of a buffer, with padding.
  int64_t padded() const;
  std::vector<Range> buckets() const;
  // See StagingMemory.
  int64_t exchanged() const;
  // Floats of the buffers in which a rank sums its lanes, without and with the staging buffer.
  int64_t buffer_elements() const;
  int64_t memory_elements() const;
};

}  // namespace lockstep::collectives
