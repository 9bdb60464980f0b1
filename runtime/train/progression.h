#pragma once

#include <cstdint>
#include <optional>

#include "runtime/train/step/loss_scale.h"

namespace lockstep {

// What a run knows of its own progress, beside weights and moments. Equal on all ranks.
struct Progression {
  int64_t step = 0;  // completed
  std::optional<double> best_metric;
  int64_t best_step = 0;
  int64_t evals_since_best = 0;
  LossScale::State loss_scale;
};

}  // namespace lockstep
