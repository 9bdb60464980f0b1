#pragma once
// How samples of the data become a network's inputs: statistics and sizes that were found in the
// training data. Runs keep them in checkpoints, and exports write them, as JSON with the field
// names of Hugging Face's preprocessor_config.json.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/json.h"

namespace lockstep::config {

// Pixels (height, width, channels) u8 become (byte / 255 - mean[c]) / std[c].
struct ImageInputs {
  int64_t height = 0, width = 0;  // of the network's input
  // The length to which the shorter side is resized before the centre is cropped. 0: the images of
  // the data have the size of the input already.
  int64_t resize = 0;
  std::vector<float> mean = {}, std = {};  // (channels)

  int64_t channels() const { return static_cast<int64_t>(mean.size()); }
  int64_t features() const { return height * width * channels(); }
};

// A numeric column becomes (x - mean) / std, or 0 if x is missing, followed by 1 for a missing x
// and otherwise 0, if missing_indicator. A categorical one becomes 1 in the slot of its category
// and 0 in the others; the last slot is for missing values and unknown categories.
struct ColumnInputs {
  std::string name = {};
  bool categorical = false;
  double mean = 0, std = 1;
  bool missing_indicator = false;
  std::vector<std::string> categories = {};

  int64_t features() const {
    if (categorical) return static_cast<int64_t>(categories.size()) + 1;
    return missing_indicator ? 2 : 1;
  }
};

struct TableInputs {
  std::vector<ColumnInputs> columns = {};  // in the order of the features
  std::vector<std::string> missing = {};   // spellings of a missing value
  std::string target = {};                 // name of the column to predict
  // A value to predict is output * target_std + target_mean.
  double target_mean = 0, target_std = 1;

  int64_t features() const;
};

// With neither images nor a table, the numbers of the data are the network's inputs as they are.
struct Preprocessing {
  std::optional<ImageInputs> images = {};
  std::optional<TableInputs> table = {};
};

// The fields of a preprocessor_config.json, and the reverse, which ignores other fields. The latter
// throws JsonError.
Json preprocessor_fields(const Preprocessing& preprocessing);
Preprocessing preprocessing_of(const Json& fields);

// Changes the fields to those of a network that normalises its inputs itself.
void mark_as_in_network(Json& fields);

// The same in some words: "pixels / 255, mean 0.5, std 0.5, 28 x 28".
std::string describe(const Preprocessing& preprocessing);

}  // namespace lockstep::config
