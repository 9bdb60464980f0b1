#pragma once
// Samples of numbers in .npy files: their features, and a class or values to predict.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/config/run_config.h"
#include "runtime/data/dataset.h"
#include "runtime/data/images/npy_file.h"

namespace lockstep {

// Inputs and what stands beside them, of one set.
struct NpySet {
  NpyFile inputs;
  std::vector<int32_t> labels = {};
  std::optional<NpyFile> targets = std::nullopt;  // instead of labels: values
};

// Samples: x (F) f32, the row of a float32 array (N, ...) as stored; label () i32, or the row of values
// (O) f32. At least one set. `classes`: 0 where they have values. Throws DataError where the arrays
// are of another form or have numbers that are not finite, and ConfigError where the model, or fields of
// images, do not go with them.
OpenedData make_npy_features(const DataConfig& data,
                             const ModelTraits& model,
                             std::optional<NpySet> train,
                             std::optional<NpySet> eval,
                             int64_t classes);

}  // namespace lockstep
