#pragma once
// A communicator that records each operation in the flight recorder: before it begins, when this
// rank waits for it, and when it is complete.

#include <memory>

#include "collectives/communicator.h"

namespace lockstep::collectives {

// Forwards all operations to `inner`, borrowed.
std::unique_ptr<Communicator> make_recorded(Communicator& inner);

}  // namespace lockstep::collectives
