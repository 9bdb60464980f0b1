#pragma once
// Learning rates.

#include <cstdint>

#include "runtime/config/run_config.h"

namespace lockstep::train {

// Learning rate of step `step` (from 0) in a run of `steps` steps; formulas at ScheduleConfig.
// `falls`: for the kind PLATEAU, how often the rate has been reduced.
double learning_rate(const ScheduleConfig& schedule,
                     int64_t step,
                     int64_t steps,
                     int64_t falls = 0);

}  // namespace lockstep::train
