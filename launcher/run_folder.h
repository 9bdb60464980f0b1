#pragma once

#include <string>

#include "launcher/session.h"
#include "runtime/config/run_config.h"

namespace lockstep {

// Makes the run folder and opens its log.txt; rank 0 does, and all ranks learn of a failure.
void open_run_folder(Session& session, const RunConfig& config);

// Writes config.textproto and environment.json into it, once it is sure that the run goes on there.
// `device`: this rank's, in words.
void describe_run(Session& session, const RunConfig& config, const std::string& device);

}  // namespace lockstep
