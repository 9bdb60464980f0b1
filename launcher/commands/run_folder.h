#pragma once
// The run folder: made and locked before the first step, described once the run is sure to go on
// there.

#include <memory>

#include "launcher/ranks/session.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/device.h"
#include "runtime/train/folder/run_folder.h"

namespace lockstep {

// Makes the run folder, takes its lock and opens its log.txt; rank 0 does, and has it until the
// object ends (null on other ranks). All ranks learn of a failure.
std::unique_ptr<RunFolder> open_run_folder(Session& session, const RunConfig& config);

// Writes config.textproto and environment.json into it and removes the end of the start before,
// once it is sure that the run goes on there. `device`: this rank's; `folder`: rank 0's.
void describe_run(Session& session,
                  const RunConfig& config,
                  const Device& device,
                  RunFolder* folder);

}  // namespace lockstep
