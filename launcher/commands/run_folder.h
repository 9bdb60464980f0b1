#pragma once
// The run folder: made before the first step, described once the run is sure to go on there.

#include "launcher/ranks/session.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/device.h"

namespace lockstep {

// Makes the run folder and opens its log.txt; rank 0 does, and all ranks learn of a failure.
void open_run_folder(Session& session, const RunConfig& config);

// Writes config.textproto and environment.json into it, once it is sure that the run goes on there.
// `device`: this rank's.
void describe_run(Session& session, const RunConfig& config, const Device& device);

}  // namespace lockstep
