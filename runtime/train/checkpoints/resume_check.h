#pragma once
// Whether a run may go on from a checkpoint, and what of it has changed since.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runtime/checkpoint/state.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

// Under which CheckpointState::extra has the config that the run had, as text, the checksum of its
// training data, in FP16 the loss scale (its factor, good steps, skipped steps), and with the schedule
// PLATEAU evaluations since the best and falls of the rate.
inline constexpr const char* kConfigKey = "config";
// Of weights that were imported: the config that says what they are. A run that goes on from them may
// have another one.
inline constexpr const char* kImportedConfigKey = "imported_config";
inline constexpr const char* kContentKey = "checksum of the training data";
inline constexpr const char* kLossScaleKey = "loss scale";
inline constexpr const char* kPlateauKey = "plateau";

// What else the order of the samples depends on, besides seed and batch; for CheckpointState::extra.
std::map<std::string, std::string> sample_order(const RunParts& parts);

// Throws CheckpointError where the run of `parts` is another one than that which wrote `state`:
// samples would come in another order, the optimizer's arrays do not fit, or a field of the config
// has changed that decides the bits (see Change in config/schema/options.proto) and neither is nor
// lies in one of `allowed_changes`. Logs, on rank 0, the fields that have changed all the same, and
// which of the arrays of compressed gradients, of which `residuals` are kept, are lost.
void check_resumable(const RunParts& parts,
                     const CheckpointState& state,
                     const std::filesystem::path& folder,
                     const std::vector<std::string>& residuals,
                     const std::vector<std::string>& allowed_changes);

}  // namespace lockstep
