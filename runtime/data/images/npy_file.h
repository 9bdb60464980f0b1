#pragma once
// Open .npy files: their arrays, class labels, and samples with features.

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/config/run_config.h"
#include "runtime/data/dataset.h"
#include "runtime/data/images/npy_array.h"
#include "runtime/data/source_file.h"

namespace lockstep::data {

// The array points into the file, whose bytes keep their address if it is moved.
struct NpyFile {
  NpyFile(const std::string& dir, const std::string& path, const std::string& field)
      : file(dir, path, field, SourceFile::Gzip::kDecompress),
        array(parse_npy(file.bytes(), file.name())) {}
  bool has_images() const { return array.type == NpyType::kUint8; }
  int64_t bytes() const { return static_cast<int64_t>(file.bytes().size()); }

  SourceFile file;
  NpyArray array;
};

template <typename Value>
Value value_at(const NpyArray& array, int64_t index) {
  Value value;
  std::memcpy(&value, array.values.data() + index * int64_t{sizeof(Value)}, sizeof(Value));
  return value;
}

// The labels of a file, each below `classes`: integers or bools, one for each sample. Throws
// DataError with the remedy for what people have instead: float32 numbers, one-hot rows, -1 and 1.
std::vector<int32_t> read_npy_labels(const NpyFile& labels,
                                     int64_t classes,
                                     const config::ModelTraits& model);

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
