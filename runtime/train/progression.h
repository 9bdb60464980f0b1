#pragma once

#include <cstdint>
#include <optional>

#include "runtime/train/step/loss_scale.h"

namespace lockstep::train {

// What a run knows of its own progress, in addition to weights and moments. Equal on all ranks.
struct Progression {
  int64_t step = 0;  // completed
  std::optional<double> best_metric;
  int64_t best_step = 0;
  int64_t evals_since_best = 0;
  LossScale::State loss_scale;
  // For the schedule PLATEAU: evaluations since the best one or the last reduction of the rate, and
  // the number of reductions.
  int64_t plateau_evals = 0, rate_falls = 0;
};

}  // namespace lockstep::train
