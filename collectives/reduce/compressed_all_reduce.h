#pragma once
// An all-reduce of gradients that takes the place of the reducer's exchange: of the sums of groups
// of lanes it leaves the sum, or what comes near it, on all ranks.

#include "collectives/sharding.h"

namespace lockstep {

class CompressedAllReduce {
 public:
  virtual ~CompressedAllReduce() = default;
  // Neighbouring lanes in a group.
  virtual int group_lanes() const = 0;
  // Takes the sum over the lanes of this rank's group `group` in a range of the flat buffer. Every
  // element once a step and group.
  virtual void add(int group, const Range& range, const float* sums) = 0;
  // Leaves the sum over all groups in the flat buffer. All ranks together.
  virtual void finish(float* sums) = 0;
};

}  // namespace lockstep
