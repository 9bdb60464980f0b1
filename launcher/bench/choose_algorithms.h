#pragma once
// The algorithms of cuBLASLt and cuDNN that a training with execution.tune uses.

#include <filesystem>
#include <string>

#include "launcher/ranks/rank_context.h"
#include "runtime/exec/device.h"
#include "runtime/run/prepared_run.h"

namespace lockstep::launcher {

// The algorithms of a run with execution.tune, whose folder is open; the same on all ranks. Rank 0
// reads the file. If there is none, a resumed run takes the copy in its folder, and a new run times
// the algorithms and writes the file. The folder gets a copy, unless the trainer is going to reject
// the start. A rank that has a file must have rank 0's. `resume`: as train's --resume. The rank's
// device must be closed. All ranks together; throws AgreedError.
exec::AlgorithmFile choose_algorithms(RankContext& rank,
                                      const run::PreparedRun& prepared,
                                      const std::string& resume);

// RUN_DIR/algorithms.txt, the copy. Throws CheckpointError if it does not exist.
exec::AlgorithmFile recorded_algorithms(const std::filesystem::path& run_dir);

}  // namespace lockstep::launcher
