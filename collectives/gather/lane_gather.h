#pragma once
// Brings what each lane has computed to all ranks.

#include <cstddef>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/layout/sharding.h"

namespace lockstep::collectives {

class LaneGather {
 public:
  // `memory`: lane_bytes for each lane, in the host's memory. Both are borrowed.
  LaneGather(Communicator& control, const LaneShares& shares, size_t lane_bytes, std::byte* memory);

  // Where a lane's bytes lie: this rank's before, all lanes' after gather().
  std::byte* of(int lane) const { return memory_ + places_[static_cast<size_t>(lane)]; }
  // Collective.
  void gather() { control_.all_gather(memory_, lane_bytes_, counts_); }

 private:
  Communicator& control_;
  size_t lane_bytes_;
  std::byte* memory_;
  std::vector<int> counts_;     // lanes of each rank
  std::vector<size_t> places_;  // of each lane in the memory, which has one rank after the other
};

}  // namespace lockstep::collectives
