#pragma once
// Gathers what a step's sums are computed from, on a device that works from a queue: the host need
// not wait for it.

#include <span>

#include "collectives/communicator.h"
#include "collectives/exchange/slice_memory.h"
#include "collectives/layout/sharding.h"
#include "collectives/reduce/step_sums.h"

namespace lockstep::collectives {

class DeviceSums {
 public:
  // The device's memory that it takes.
  static size_t bytes(const LaneShares& shares);
  // All borrowed: `slices` for memory of the device; `queue` copies to it; `memory`: bytes().
  DeviceSums(Communicator& slices, SliceMemory& queue, const LaneShares& shares, std::byte* memory);

  // Queues the gather of all ranks' statistics and squares, which lie in host_array()s and are read
  // when the device reaches this point. The result is valid in stream order, until the next call.
  // Collective.
  GatheredSums gather(std::span<const LaneStatistics> local, const ExactSum& squares);

 private:
  Communicator& slices_;
  SliceMemory& queue_;
  std::byte* parts_;
  uint32_t* places_;
  size_t part_bytes_;
  int lanes_;
};

}  // namespace lockstep::collectives
