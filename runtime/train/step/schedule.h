#pragma once
// Learning rates and gradient clipping.

#include <cstdint>

#include "runtime/config/run_config.h"

namespace lockstep {

// Learning rate of step `step` (from 0) in a run of `steps`; formulas at ScheduleConfig. `falls`: of
// the kind PLATEAU, how often the rate has fallen.
double learning_rate(const ScheduleConfig& schedule,
                     int64_t step,
                     int64_t steps,
                     int64_t falls = 0);

// Scale that makes the clipped global norm at most `limit`; 1 without a limit, which is 0.
double clip_factor(double norm, double limit);

}  // namespace lockstep
