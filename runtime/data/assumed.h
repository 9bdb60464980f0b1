#pragma once
// Data that are not here, for a plan: as far as the config says what they would be.

#include "runtime/data/dataset.h"

namespace lockstep {

// open_data() with the training set; or, where a file that the config names is not here, data sets
// with the shapes of its samples that nobody can read, and summary.assumed says so. Throws
// DataError that names the file, and the field to set if there is one, where the config does not
// say enough.
OpenedData open_or_assume_data(const DataConfig& config, const ModelTraits& model, uint64_t seed);

}  // namespace lockstep
