#pragma once
// What the network of a checkpoint reads and computes.

#include <string>

#include "models/registry.h"
#include "runtime/checkpoint/format/state.h"
#include "runtime/run/open_config.h"

namespace lockstep::launcher {

// Inputs and outputs, read off the checkpoint's tensors. The size of images is a usual one if any
// size fits.
models::ModelIo io_of_weights(const models::OpenedModel& model,
                              const checkpoint::CheckpointState& state);

// The same, with the size of images that the run had: the one that the checkpoint keeps,
// data.image.size, or that of the data. `origin` names the checkpoint in messages. Throws
// CheckpointError, and DataError if the size is known from the data alone, and they cannot be read.
models::ModelIo io_of_run(const run::OpenedConfig& opened,
                          const checkpoint::CheckpointState& state,
                          const std::string& origin);

}  // namespace lockstep::launcher
