#pragma once
// Base of formats that have only images.

#include "runtime/base/error.h"
#include "runtime/data/format.h"

namespace lockstep::data {

// Config must have the fields `train` and `eval`. By default, files are JPEG or PNG images of
// different sizes, and before they are opened only the model knows the number of classes.
template <typename Config>
class ImageFormat : public FileFormat<Config> {
 public:
  using FileFormat<Config>::FileFormat;

  void check() const override {
    if (this->data_.image.size == 0)
      throw ConfigError(
          "data.image.size: missing; allowed: 1..8192, the side of the model's input images");
  }
  bool supports(config::ModelInput input) const final {
    return input != config::ModelInput::kTokens;
  }
  bool has_images(config::ModelInput) const final { return true; }
  OpenedSource open(const config::ModelTraits& /*model*/,
                    uint64_t /*seed*/,
                    bool need_train) const final {
    return open_images(need_train);
  }
  PlaceholderData make_placeholder(const MissingFile& missing) const override {
    return missing.with_outputs_of_model("classes");
  }

 protected:
  // Opens the config's files. Throws DataError, which names the file.
  virtual ImageStores open_images(bool need_train) const = 0;
};

}  // namespace lockstep::data
