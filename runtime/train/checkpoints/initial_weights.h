#pragma once
// Weights from elsewhere that a run begins with.

#include <string>
#include <vector>

#include "runtime/checkpoint/reader.h"
#include "runtime/config/run_config.h"
#include "runtime/data/dataset.h"

namespace lockstep {

// Reads what train.init_from names, a safetensors file or a folder of Hugging Face, into the flat
// parameter buffer that `slices` name; a head that it lacks, or has for another number of classes,
// keeps what is there. Empty: nothing is read. Throws CheckpointError, ConfigError or IoError.
WeightsRead read_initial_weights(const RunConfig& config,
                                 const std::vector<NamedSlice>& slices,
                                 float* parameters);

// What a person should know of the folder that train.init_from names where a run learns from such
// data, in sentences; none where it names no folder. Throws ConfigError.
std::vector<std::string> notes_of_data(const RunConfig& config, const DataSummary& data);

// Throws CheckpointError with a word on what to do where `path` is a file that is not safetensors by
// its name, such as model.pt, or a folder that is not one of Hugging Face.
void check_weights_path(const std::string& path);

}  // namespace lockstep
