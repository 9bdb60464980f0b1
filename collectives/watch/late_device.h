#pragma once
// Names the ranks for whose GPUs the others wait.

#include <span>
#include <string>

#include "runtime/base/flight_reader.h"

namespace lockstep::collectives {

// "rank 3 on node1 (process 4711)".
std::string name_of(const FlightMoment& rank);

// Compares how far the ranks' GPUs are in the operations between ranks. Returns the ranks that the
// others wait for, the operation that they have not reached, and why; or the operation in which all
// of them are. Empty if no rank has waited for its GPU for longer than work may take. `ranks`: all
// ranks of the run.
std::string late_device(std::span<const FlightMoment> ranks);

}  // namespace lockstep::collectives
