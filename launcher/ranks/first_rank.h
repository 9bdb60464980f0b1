#pragma once
// Commands whose work one rank does, while the others wait.

#include <functional>
#include <string>

#include "launcher/command_line/common_options.h"
#include "runtime/exec/device.h"

namespace lockstep::launcher {

// Starts the log and runs `work` on rank 0. All ranks together; throws AgreedError.
ExitCode on_first_rank(Session& session,
                       const std::string& log_level,
                       const std::function<void()>& work);

// The same on rank 0's device, which is of the same kind on all ranks.
ExitCode on_first_device(Session& session,
                         const CommonOptions& options,
                         const std::function<void(exec::Device&)>& work);

}  // namespace lockstep::launcher
