#pragma once

#include "runtime/config/run_config.h"

namespace lockstep {

// Checks what run_config.h says beyond the range of a single number: spellings, fields that must be
// given, and relations between fields. Throws ConfigError. Opens no data file.
void validate(const RunConfig& config);

}  // namespace lockstep
