#pragma once

#include "runtime/config/run_config.h"

namespace lockstep::config {

// Checks beyond the range of a single number that do not depend on the model: spelling, fields that
// must be given, and relations between fields. Throws ConfigError. Opens no data file.
void validate(const RunConfig& config);

// Checks comm.residual_groups against the lanes, unless these are AUTO, and the number of ranks,
// each of which must have a group.
void require_residual_groups(const RunConfig& config, int ranks);

// Checks the schedule against the length of the run, once it is known; a config may give epochs.
void validate_schedule_length(const ScheduleConfig& schedule, int64_t steps);

}  // namespace lockstep::config
