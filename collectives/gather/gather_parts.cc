#include "collectives/gather/gather_parts.h"

namespace lockstep::collectives {

void gather_parts(Communicator& communicator,
                  const Topology& topology,
                  std::byte* buffer,
                  size_t bytes) {
  for (const GatherStep& step : topology.gather_steps(communicator.rank())) {
    std::byte* const at = buffer + static_cast<size_t>(step.first_part) * bytes;
    communicator.wait(communicator.start_all_gather(
        at, static_cast<size_t>(step.slot_parts) * bytes, step.group));
  }
}

}  // namespace lockstep::collectives
