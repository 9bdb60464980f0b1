#pragma once
// Data that are not here, for a plan: as far as the config says what they would be.

#include <optional>
#include <string>

#include "runtime/data/dataset.h"
#include "runtime/data/images/image.h"

namespace lockstep {

// Of a training set whose size only its files tell.
inline constexpr int64_t kAssumedSamples = 1'000'000;

// Images of a set, as a plan needs them.
struct AssumedImages {
  int64_t count = kAssumedSamples;
  std::optional<ImageSize> size = {};  // where all have one
  int channels = 3;
  int64_t resident_bytes = 0;
};

// What a config says of data that are not here: sequences of tokens for models that take those,
// else images.
struct AssumedData {
  std::string what;                // in words: "10 classes, as model.resnet.classes says"
  int64_t outputs = 0;             // classes, vocabulary or values
  AssumedImages train = {};        // of images
  AssumedImages eval = {};         // where the config names some
  bool in_memory_counted = false;  // the memory of files that are read into it
  bool packed = false;             // sequences are packed documents: see text/packing.h
  int64_t vocabulary = 0;          // of texts whose outputs are no tokens
};

// A file that a config names and that is not here, and the model that would learn from it.
class MissingFile {
 public:
  // Borrows `data` and `model`.
  MissingFile(const DataConfig& data, const ModelTraits& model, std::string name);

  const std::string& name() const { return name_; }
  const ModelTraits& model() const { return model_; }

  // Classes ("classes") or vocabulary ("tokens") of the model's config; refused where that leaves
  // them to the data.
  AssumedData with_outputs_of_model(const std::string& what) const;

  // Throws DataError: nothing but the file says `unknown`. `remedy`: the field that could, as in
  // "set data.image.size, or ", or "".
  [[noreturn]] void refuse(const std::string& unknown, const std::string& remedy) const;

 private:
  const DataConfig& data_;
  const ModelTraits& model_;
  std::string name_;
};

// open_data() with the training set; or, where a file that the config names is not here, data sets
// with the shapes of its samples that nobody can read, and summary.assumed says so. Throws
// DataError that names the file, and the field to set if there is one, where the config does not
// say enough.
OpenedData open_or_assume_data(const DataConfig& config, const ModelTraits& model, uint64_t seed);

}  // namespace lockstep
