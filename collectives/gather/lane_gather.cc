#include "collectives/gather/lane_gather.h"

namespace lockstep::collectives {

LaneGather::LaneGather(Communicator& control,
                       const LaneShares& shares,
                       size_t lane_bytes,
                       std::byte* memory)
    : control_(control),
      lane_bytes_(lane_bytes),
      memory_(memory),
      places_(static_cast<size_t>(shares.lanes)) {
  size_t next = 0;
  for (int rank = 0; rank < shares.ranks; ++rank) {
    const LocalLanes lanes = shares.of(rank);
    counts_.push_back(lanes.count);
    for (int i = 0; i < lanes.count; ++i, next += lane_bytes)
      places_[static_cast<size_t>(lanes[i])] = next;
  }
}

}  // namespace lockstep::collectives
