#pragma once
// The run folder: created and locked before the first step, and described once it is certain that
// the run continues there.

#include <memory>
#include <string>

#include "launcher/ranks/session.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/device.h"
#include "runtime/plan/memory_plan.h"
#include "runtime/train/folder/run_folder.h"

namespace lockstep::launcher {

// Creates the run folder, takes its lock and opens its log.txt. Only rank 0 does, and holds the
// lock while the object exists (null on other ranks). All ranks throw if it fails.
std::unique_ptr<train::RunFolder> open_run_folder(Session& session, const RunConfig& config);

// Writes config.textproto and environment.json to it and removes end.json of the previous start.
// Call it once it is certain that the run continues there. `memory` and `device` are this rank's,
// `folder` rank 0's, `bits` what determines the run's bits (RankDevice::bits()).
void describe_run(Session& session,
                  const RunConfig& config,
                  const plan::MemoryPlan& memory,
                  const exec::Device& device,
                  const std::string& bits,
                  train::RunFolder* folder);

}  // namespace lockstep::launcher
