#pragma once
// Weights from other sources, with which a run begins.

#include <string>
#include <vector>

#include "runtime/checkpoint/format/reader.h"
#include "runtime/config/run_config.h"
#include "runtime/data/dataset.h"

namespace lockstep::train {

// Reads train.init_from, a safetensors file or a Hugging Face folder, into the flat parameter
// buffer that `slices` describe. If the file has no head, or one for another number of classes, the
// head keeps the values in the buffer. Does nothing if train.init_from is empty. Throws
// CheckpointError, ConfigError or IoError.
checkpoint::WeightsRead read_initial_weights(const RunConfig& config,
                                             const std::vector<checkpoint::NamedSlice>& slices,
                                             float* parameters);

// Notes for the user about training on these data from the folder that train.init_from names, as
// sentences. Empty if it names no folder. Throws ConfigError.
std::vector<std::string> notes_of_data(const RunConfig& config, const data::DataSummary& data);

// Throws CheckpointError, with a remedy, if `path` is by its name a file in a format other than
// safetensors, such as model.pt, or a folder that is not a Hugging Face folder.
void require_weights_path(const std::string& path);

}  // namespace lockstep::train
