#pragma once
// The location of each rank, which watchdogs know before a rank reports anything.

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/base/flight_reader.h"

namespace lockstep::collectives {

struct RankLocation {
  std::string machine;  // host_identity()
  std::string host;     // its name, for people
  int64_t process = 0;
  std::string pid_namespace;  // of `process`: each container has its own
};

// The locations of all ranks, by rank. Collective.
std::vector<RankLocation> gather_locations(Communicator& communicator);

// The state of a rank that has not started anything yet.
FlightMoment first_moment(int rank, const RankLocation& location);

}  // namespace lockstep::collectives
