#pragma once

#include <string>

#include "launcher/session.h"
#include "runtime/config/run_config.h"

namespace lockstep {

// Makes the run folder and writes config.textproto, environment.json and log.txt into it; rank 0
// does, and all ranks learn of a failure. Refuses a folder that holds another run's checkpoints
// unless it is to be resumed.
void prepare_run_folder(Session& session, const RunConfig& config, const std::string& resume);

}  // namespace lockstep
