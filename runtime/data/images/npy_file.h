#pragma once
// Open .npy files: their arrays, class labels, and samples with features.

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/config/run_config.h"
#include "runtime/data/dataset.h"
#include "runtime/data/images/masks.h"
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

// Classes of pixels or other positions: an array (samples, ...) of integers. -1 does not count, and
// neither does 255 in uint8 arrays.
class NpyMasks {
 public:
  // The masks of images: (images, height, width). Throws DataError if the array has another type,
  // or another size than the `images`.
  NpyMasks(NpyFile file, int64_t classes, const NpyArray& images);
  // The classes of positions: (samples, ...). Throws DataError if the array has another type or no
  // positions, or a number that is no class.
  static NpyMasks of_features(NpyFile file, int64_t classes);
  // See ImageStore::load_mask().
  void load(int64_t index, Mask* mask) const;
  // Writes the classes of a sample.
  void read(int64_t index, int32_t* classes) const;
  Shape sample() const;
  const std::string& name() const { return file_.file.name(); }
  int64_t bytes() const { return file_.bytes(); }

 private:
  // Whose extents are not checked yet.
  NpyMasks(NpyFile file, int64_t classes);

  NpyFile file_;
  MaskRules rules_;
};

// Inputs of the training or the evaluation set, with labels or targets.
struct NpySet {
  NpyFile inputs;
  std::vector<int32_t> labels = {};
  std::optional<NpyFile> targets = std::nullopt;  // values to predict, instead of labels
  std::shared_ptr<const NpyMasks> masks = {};     // classes of positions, instead of labels
};

// Samples: x (F) f32, a row of the stored float32 array (N, ...), and label () i32, classes of
// positions (...) i32 or target (O) f32, a row of values. At least one set must be given.
// `classes`: 0 if targets are values. Throws DataError if an array has another shape or type or
// values that are not finite. Throws ConfigError if the model or image fields do not fit.
OpenedData make_npy_features(const DataConfig& data,
                             const config::ModelTraits& model,
                             std::optional<NpySet> train,
                             std::optional<NpySet> eval,
                             int64_t classes);

}  // namespace lockstep::data
