#pragma once
// Where the ranks of a run are, as the watchdogs know it before anything else is heard of them.

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/base/flight_reader.h"

namespace lockstep {

struct RankPlace {
  std::string machine;  // host_identity()
  std::string host;     // its name, for people
  int64_t process = 0;
  std::string processes;  // the namespace that this number is of: containers have their own
};

// Of every rank, by its number. All ranks together.
std::vector<RankPlace> gather_places(Communicator& communicator);

// A rank there that has not begun anything.
FlightMoment first_moment(int rank, const RankPlace& place);

}  // namespace lockstep
