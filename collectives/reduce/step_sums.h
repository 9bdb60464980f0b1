#pragma once
// The sums over a step's global batch, and what the ranks gather to compute them.

#include <cstddef>
#include <cstdint>

#include "runtime/base/exact_sum.h"

namespace lockstep::collectives {

// The statistics that a loss op reports for a lane, in this order: sum of losses, rows counted,
// rows predicted correctly, rows whose class is among the top 5 predictions.
struct LaneStatistics {
  double values[4] = {};
};

// Sums over the global batch, equal on all ranks.
struct StepSums {
  double loss_sum = 0;
  double valid_count = 0;
  double correct_count = 0;
  double top5_count = 0;
  double squared_norm = 0;  // of the summed gradient, before scaling; see exact_sum.h
};

// What the ranks have gathered for these sums, in a device's memory; borrowed. A rank's part begins
// with its ExactSum of squares.
struct GatheredSums {
  const std::byte* parts = nullptr;  // (ranks, part_bytes)
  size_t part_bytes = 0;
  int ranks = 1;
  const uint32_t* places = nullptr;  // (lanes): the offset of each lane's statistics in `parts`
  int lanes = 1;
};

}  // namespace lockstep::collectives
