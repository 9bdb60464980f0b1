#pragma once
// Stage 3 of a run's preparation: the data.

#include <memory>

#include "runtime/data/dataset.h"
#include "runtime/run/open_config.h"

namespace lockstep::run {

// kGenerate: a network with a checkpoint's weights makes texts or images, without data.
enum class RunPurpose { kTrain, kEvaluate, kPredict, kGenerate };

// Opens the data that a run for this purpose reads. With `may_assume` the data files of a training
// run may be missing: see data/placeholder.h. Throws ConfigError if the purpose needs data that the
// config does not name, and DataError if data cannot be read.
std::shared_ptr<data::OpenedData> open_run_data(const OpenedConfig& opened,
                                                RunPurpose purpose,
                                                bool may_assume = false);

}  // namespace lockstep::run
