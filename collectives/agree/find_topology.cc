#include "collectives/agree/find_topology.h"

#include <cstdlib>

#include "collectives/agree/agreement.h"
#include "runtime/base/host.h"

namespace lockstep::collectives {

Topology find_topology(Communicator& communicator) {
  const char* named = std::getenv("LOCKSTEP_NODE");
  return topology_of(gather_texts(communicator, named != nullptr ? named : host_identity()));
}

}  // namespace lockstep::collectives
