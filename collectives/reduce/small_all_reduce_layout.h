#pragma once
// The memory of a sum of small buffers that all ranks get whole: pure arithmetic.

#include <cstdint>
#include <vector>

#include "collectives/sharding.h"
#include "collectives/topology.h"

namespace lockstep {

struct SmallAllReduceLayout {
  int lanes = 1;
  Topology topology;     // shares no memory
  int64_t elements = 0;  // of a lane's buffer

  // Of a buffer with its padding.
  int64_t padded() const;
  std::vector<Range> buckets() const;
  // See ReducerOptions.
  int64_t exchanged() const;
  // Floats of the buffers in which a rank's lanes are summed, and with what is under way.
  int64_t buffer_elements() const;
  int64_t memory_elements() const;
};

}  // namespace lockstep
