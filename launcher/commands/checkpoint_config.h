#pragma once
// The config that a checkpoint keeps of its run.

#include <filesystem>

#include "runtime/checkpoint/state.h"
#include "runtime/config/run_config.h"

namespace lockstep {

// The model that the checkpoint's run had, and what its weights began as. Throws CheckpointError of
// one that was written before configs were kept.
RunConfig config_of_checkpoint(const std::filesystem::path& folder, const CheckpointState& state);

}  // namespace lockstep
