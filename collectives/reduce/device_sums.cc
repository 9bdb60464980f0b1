#include "collectives/reduce/device_sums.h"

#include <algorithm>

namespace lockstep::collectives {
namespace {

size_t part_bytes(const LaneShares& shares) {
  return sizeof(ExactSum) + static_cast<size_t>(shares.most()) * sizeof(LaneStatistics);
}

size_t parts_bytes(const LaneShares& shares) {
  return static_cast<size_t>(shares.ranks) * part_bytes(shares);
}

}  // namespace

size_t DeviceSums::bytes(const LaneShares& shares) {
  return parts_bytes(shares) + static_cast<size_t>(shares.lanes) * sizeof(uint32_t);
}

DeviceSums::DeviceSums(Communicator& slices,
                       SliceMemory& queue,
                       const LaneShares& shares,
                       std::byte* memory)
    : slices_(slices),
      queue_(queue),
      parts_(memory),
      places_(reinterpret_cast<uint32_t*>(memory + parts_bytes(shares))),
      part_bytes_(part_bytes(shares)),
      lanes_(shares.lanes) {
  const std::span<uint32_t> places = queue.host_array<uint32_t>(static_cast<size_t>(lanes_));
  for (int rank = 0; rank < shares.ranks; ++rank) {
    const LocalLanes lanes = shares.of(rank);
    for (int i = 0; i < lanes.count; ++i)
      places[static_cast<size_t>(lanes[i])] =
          static_cast<uint32_t>(static_cast<size_t>(rank) * part_bytes_ + sizeof(ExactSum) +
                                static_cast<size_t>(i) * sizeof(LaneStatistics));
  }
  queue.copy(reinterpret_cast<const std::byte*>(places.data()),
             reinterpret_cast<std::byte*>(places_),
             places.size_bytes());
}

GatheredSums DeviceSums::gather(std::span<const LaneStatistics> local, const ExactSum& squares) {
  std::byte* const mine = parts_ + static_cast<size_t>(slices_.rank()) * part_bytes_;
  queue_.copy(reinterpret_cast<const std::byte*>(&squares), mine, sizeof(squares));
  queue_.copy(
      reinterpret_cast<const std::byte*>(local.data()), mine + sizeof(squares), local.size_bytes());
  slices_.all_gather(parts_, part_bytes_);
  return {.parts = parts_,
          .part_bytes = part_bytes_,
          .ranks = slices_.size(),
          .places = places_,
          .lanes = lanes_};
}

}  // namespace lockstep::collectives
