#pragma once

#include <cstdint>

#include "runtime/config/run_config.h"

namespace lockstep {

// Learning rate of step `step` (from 0) in a run of `steps`; formulas at ScheduleConfig.
double learning_rate(const ScheduleConfig& schedule, int64_t step, int64_t steps);

}  // namespace lockstep
