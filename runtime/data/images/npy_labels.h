#pragma once
// Class labels in .npy files.

#include <cstdint>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/data/images/npy_file.h"

namespace lockstep::data {

// The labels of a file, each below `classes`: integers or bools, one for each sample. Throws
// DataError with the remedy for what people have instead: float32 numbers, one-hot rows, -1 and 1.
std::vector<int32_t> read_npy_labels(const NpyFile& labels,
                                     int64_t classes,
                                     const config::ModelTraits& model);

}  // namespace lockstep::data
