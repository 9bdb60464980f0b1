#pragma once
// How a diffusion model's images and noise are mixed at a time: z = a x + b e, a^2 + b^2 = 1 on the
// schedules of noise, a + b = 1 on straight lines.

#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep {

// a and b.
struct DiffusionShares {
  double image = 0, noise = 0;
};

// Of the times 0 to kDiffusionTimes - 1, in which the image's share falls; of LINEAR and COSINE.
std::vector<DiffusionShares> diffusion_shares(DiffusionSchedule schedule);

}  // namespace lockstep
