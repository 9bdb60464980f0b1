#include "collectives/nodes.h"

#include <cstdlib>

#include "collectives/agreement.h"
#include "runtime/base/host.h"

namespace lockstep {

Topology find_topology(Communicator& communicator) {
  const char* named = std::getenv("LOCKSTEP_NODE");
  return topology_of(gather_texts(communicator, named != nullptr ? named : host_identity()));
}

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

}  // namespace lockstep
