#pragma once
// Sets the state with which a run begins: that of a checkpoint, or a new one.

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/train/progression.h"
#include "runtime/train/run_context.h"
#include "runtime/train/state/checkpoint_content.h"
#include "runtime/train/step/step_update.h"

namespace lockstep::train {

// Loads weights, moments and progress. Checks that the checkpoint belongs to a run like this one
// (resume_check.h), except for the fields in `allowed_changes`. `on_hosts`: see Saving::Restore.
// Collective; throws AgreedError.
Progression restore_state(const RunContext& context,
                          const RunMemory& memory,
                          const CheckpointContent& content,
                          const std::filesystem::path& folder,
                          bool on_hosts,
                          const std::vector<std::string>& allowed_changes);

// Initializes the weights, at random or from train.init_from, and everything else. The memory may
// have been used before. Collective; throws AgreedError.
void start_from_scratch(const RunContext& context, const RunMemory& memory, StepUpdate& update);

}  // namespace lockstep::train
