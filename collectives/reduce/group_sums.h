#pragma once
// What takes the place of an exchange of gradients: it is given the sums of groups of lanes and
// brings their sum, or what comes near it, to all ranks.

#include "collectives/sharding.h"

namespace lockstep {

class GroupSums {
 public:
  virtual ~GroupSums() = default;
  // Neighbouring lanes in a group.
  virtual int group_lanes() const = 0;
  // Takes the sum over the lanes of this rank's group `group` in a range of the flat buffer. Every
  // element once a step and group.
  virtual void add(int group, const Range& range, const float* sums) = 0;
  // Leaves the sum over all groups in the flat buffer. All ranks together.
  virtual void finish(float* sums) = 0;
};

}  // namespace lockstep
