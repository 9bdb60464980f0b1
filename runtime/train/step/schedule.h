#pragma once
// Learning rates and gradient clipping.

#include <cstdint>

#include "runtime/config/run_config.h"

namespace lockstep::train {

// Learning rate of step `step` (from 0) in a run of `steps` steps; formulas at ScheduleConfig.
// `falls`: for the kind PLATEAU, how often the rate has been reduced.
double learning_rate(const ScheduleConfig& schedule,
                     int64_t step,
                     int64_t steps,
                     int64_t falls = 0);

// The factor that limits the global norm to `limit`; 1 if limit is 0 (no limit).
double clip_factor(double norm, double limit);

}  // namespace lockstep::train
