#pragma once
// Between stages 2 and 3 of a run's preparation: the number of lanes. Only this file knows what
// train.lanes: 0, AUTO, means; later stages see the number. Also how evenly ranks share lanes.

#include <cstdint>
#include <string>

#include "collectives/layout/sharding.h"
#include "runtime/run/open_config.h"

namespace lockstep::run {

struct ChosenLanes {
  OpenedConfig opened;  // train.lanes is not AUTO
  std::string text;     // "4 (AUTO: 16 samples a lane)"; empty: the config's own number
};

// Resolves train.lanes. AUTO is the number that the run to resume `recorded`, if it divides the
// batch (0: nothing was recorded); 1 if the network mixes samples; the number for which a lane has
// the only batch that an ONNX file takes; otherwise the largest power of two up to 8 that divides
// the batch and, if the network normalises over a lane, leaves it 16 samples or more. It depends on
// nothing else, so that a config has the same bits on every device and any number of ranks.
//
// Then checks the fields that depend on the lanes. Throws ConfigError.
ChosenLanes choose_lanes(const OpenedConfig& opened, int64_t recorded = 0);

// The lanes of a rank that one pass computes (execution.lanes_per_pass), which are no more than it
// has.
int lanes_of_pass(const RunConfig& config, int ranks);

// How a number of ranks, up to that of the lanes, shares the lanes.
struct LaneUse {
  int most = 1;              // lanes of a rank that has the most, for which the others wait
  double efficiency = 1;     // the share of the ranks' time that is used, at most
  std::string warning = {};  // a line if some ranks have fewer; otherwise empty
};
LaneUse lane_use(const RunConfig& config, const collectives::LaneShares& shares);

}  // namespace lockstep::run
