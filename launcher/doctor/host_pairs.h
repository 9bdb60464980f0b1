#pragma once
// Times exchanges between hosts.

#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "launcher/doctor/facts.h"

namespace lockstep::doctor {

// Pairs of `count` (0, 1, ...) such that each number is in at most one pair of a round, and any two
// of them are paired in one round: the circle method for tournaments.
std::vector<std::vector<std::pair<int, int>>> rounds_of_pairs(int count);

// Times an exchange between the first ranks of every two hosts, `machines[r]` being rank r's. Pairs
// of a round exchange at the same time. Takes about `limit_s` seconds on all but slow networks; of
// more than 64 hosts, each meets 64 others. Collective; the result is the same on all ranks, with
// the host names of `names`.
std::vector<HostPair> time_host_pairs(collectives::Communicator& communicator,
                                      const std::vector<std::string>& machines,
                                      const std::vector<std::string>& names,
                                      double limit_s);

}  // namespace lockstep::doctor
