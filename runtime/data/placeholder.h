#pragma once
// Placeholders for data files that do not exist on this machine, for `lockstep plan`. They have the
// shapes that follow from the config.

#include <optional>
#include <string>

#include "runtime/data/dataset.h"
#include "runtime/data/images/image.h"

namespace lockstep::data {

// Samples of a placeholder data set: the real number is known only from the files.
inline constexpr int64_t kPlaceholderSamples = 1'000'000;

// What a plan needs to know about the images of a data set.
struct PlaceholderImages {
  int64_t count = kPlaceholderSamples;
  std::optional<ImageSize> size = {};  // if all images have the same one
  int channels = 3;
  int64_t resident_bytes = 0;
};

// What the config determines about missing data: token sequences if the model takes tokens,
// otherwise images.
struct PlaceholderData {
  std::string what;                // for messages: "10 classes, as model.resnet.classes says"
  int64_t outputs = 0;             // classes, vocabulary or values
  PlaceholderImages train = {};    // images only
  PlaceholderImages eval = {};     // images only; used if the config names evaluation data
  bool in_memory_counted = false;  // resident_bytes includes files that are read into memory
  bool packed = false;             // sequences are packed documents, see text/packing.h
  int64_t vocabulary = 0;          // of the input, for texts whose outputs are not tokens
  int64_t symbols = 0;             // of a transcript, at most
  int64_t texts = 1;               // of a sample
};

// A missing data file that the config names, and the model that would be trained on it.
class MissingFile {
 public:
  // Borrows `data` and `model`.
  MissingFile(const DataConfig& data, const config::ModelTraits& model, std::string name);

  const std::string& name() const { return name_; }
  const config::ModelTraits& model() const { return model_; }

  // A placeholder with the model's number of outputs. `what`, for messages: "classes" or "tokens".
  // Throws DataError if the model's config leaves that number to the data.
  PlaceholderData with_outputs_of_model(const std::string& what) const;

  // Throws DataError because only the file has `unknown`, for example "the number of features".
  // `remedy` names a field to set instead, as in "set data.image.size, or ", or is "".
  [[noreturn]] void refuse(const std::string& unknown, const std::string& remedy) const;

 private:
  const DataConfig& data_;
  const config::ModelTraits& model_;
  std::string name_;
};

// Like open_data() with the training set. But if a file that the config names does not exist, it
// returns placeholder data sets: they have the samples' shapes and cannot be read, and
// summary.placeholder describes them. Throws DataError if the shapes do not follow from the config;
// the message names the file, and the field to set if there is one.
OpenedData open_data_or_placeholder(const DataConfig& config,
                                    const config::ModelTraits& model,
                                    uint64_t seed);

}  // namespace lockstep::data
