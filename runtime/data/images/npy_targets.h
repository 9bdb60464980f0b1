#pragma once
// Named targets from .npy files: see NpyConfig::targets.

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/images/npy_file.h"
#include "runtime/data/named_targets.h"

namespace lockstep::data {

// Opens the files of the parts that the model asks for. `train`: the training files, otherwise
// those for evaluation; `samples`: how many the inputs have, in the file `inputs`. Parts of class
// numbers are integers; those of values are float32, or integers that are converted. Throws
// DataError for
// other types and extents than the model asks for, class numbers outside and values that are not
// finite.
std::shared_ptr<const TargetRecords> open_npy_targets(const DataConfig& data,
                                                      const NpyConfig& npy,
                                                      const std::vector<config::TargetPart>& asked,
                                                      bool train,
                                                      int64_t samples,
                                                      const std::string& inputs);

}  // namespace lockstep::data
