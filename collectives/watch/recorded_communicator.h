#pragma once
// A communicator that writes each operation into the flight recorder before it begins, when this
// rank waits for it, and when it is through.

#include <memory>

#include "collectives/communicator.h"

namespace lockstep {

// Does what `inner`, borrowed, does.
std::unique_ptr<Communicator> make_recorded(Communicator& inner);

}  // namespace lockstep
