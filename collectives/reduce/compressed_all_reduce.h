#pragma once
// An all-reduce of gradients that replaces the exchange of gradients. From the sums of groups of
// lanes it computes their sum, or an approximation of it, on all ranks.

#include "collectives/layout/sharding.h"

namespace lockstep::collectives {

class CompressedAllReduce {
 public:
  virtual ~CompressedAllReduce() = default;
  // Takes the sum over the lanes of this rank's group `group`, for a range of the flat buffer.
  // Called once a step for every element and group.
  virtual void add(int group, const Range& range, const float* sums) = 0;
  // Writes the sum over all groups to the flat buffer `sums`. Collective.
  virtual void finish(float* sums) = 0;
};

}  // namespace lockstep::collectives
