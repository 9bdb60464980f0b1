#pragma once
// Samples with features from .npy files, and a class or values to predict.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/config/run_config.h"
#include "runtime/data/dataset.h"
#include "runtime/data/images/npy_file.h"

namespace lockstep::data {

// Inputs of the training or the evaluation set, with labels or targets.
struct NpySet {
  NpyFile inputs;
  std::vector<int32_t> labels = {};
  std::optional<NpyFile> targets = std::nullopt;  // values to predict, instead of labels
};

// Samples: x (F) f32, a row of the stored float32 array (N, ...), and label () i32 or target (O)
// f32, a row of values. At least one set must be given. `classes`: 0 if targets are values. Throws
// DataError if an array has another shape or type or values that are not finite. Throws ConfigError
// if the model or image fields do not fit.
OpenedData make_npy_features(const DataConfig& data,
                             const config::ModelTraits& model,
                             std::optional<NpySet> train,
                             std::optional<NpySet> eval,
                             int64_t classes);

}  // namespace lockstep::data
