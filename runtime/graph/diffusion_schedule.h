#pragma once
// How a diffusion model's images and noise are mixed at a time: z = a x + b e. a^2 + b^2 = 1 for
// the schedules of noise, a + b = 1 for straight lines.

#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep::graph {

// The weights a and b.
struct DiffusionShares {
  double image = 0, noise = 0;
};

// The weights at times 0 to kDiffusionTimes - 1, in which the image's weight decreases; for LINEAR
// and COSINE.
std::vector<DiffusionShares> diffusion_shares(DiffusionSchedule schedule);

}  // namespace lockstep::graph
