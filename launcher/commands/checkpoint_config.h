#pragma once
// The config that a checkpoint keeps of its run.

#include <filesystem>
#include <string>

#include "runtime/checkpoint/state.h"
#include "runtime/config/run_config.h"

namespace lockstep {

// The model that the checkpoint's run had, and what its weights began as. Throws CheckpointError of
// one that was written before configs were kept.
RunConfig config_of_checkpoint(const std::filesystem::path& folder, const CheckpointState& state);

// Whether the checkpoint decides with the config which parameters learn, so that it must be read before the
// graphs are built.
bool depends_on_checkpoint(const RunConfig& config);

// Sets the model so that it has the parameters that the checkpoint has, if an older revision wrote it, by another
// rule of what learns in a file of model.onnx; true then.
bool adopt_recorded_parameters(const CheckpointState& state, ModelConfig& model);
void warn_of_older_revision(const std::string& where);

}  // namespace lockstep
