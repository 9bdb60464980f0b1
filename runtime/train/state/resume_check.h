#pragma once
// Whether a run may resume from a checkpoint, and what has changed since it was written.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/state.h"
#include "runtime/train/run_context.h"

namespace lockstep::train {

// Other things on which the order of the samples depends, besides seed and batch size; for
// CheckpointState::extra.
std::map<std::string, std::string> sample_order(const RunContext& context);

// Throws CheckpointError if the run of `context` cannot continue the one that wrote `state`:
// samples would come in another order, the optimizer's arrays do not fit, or a field of the config
// that decides the bits (see Change in config/schema/options.proto) has changed and is not covered
// by `allowed_changes`. Rank 0 logs the other fields that have changed, and the arrays of
// compressed gradients that are lost because they are not among `residuals`.
void check_resumable(const RunContext& context,
                     const checkpoint::CheckpointState& state,
                     const std::filesystem::path& folder,
                     const std::vector<std::string>& residuals,
                     const std::vector<std::string>& allowed_changes);

}  // namespace lockstep::train
