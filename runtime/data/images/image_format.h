#pragma once
// What formats have in common that are images and nothing else.

#include "runtime/base/error.h"
#include "runtime/data/format.h"

namespace lockstep {

// Config has the fields `train` and `eval`. Unless told otherwise the files are JPEG and PNG, which
// differ in size, and only the model says how many classes there are before they are opened.
template <typename Config>
class ImageFormat : public FileFormat<Config> {
 public:
  using FileFormat<Config>::FileFormat;

  void check() const override {
    if (this->data_.image.size == 0)
      throw ConfigError(
          "data.image.size: missing; allowed: 1..8192, the side of the images that the model sees");
  }
  bool gives(ModelInput input) const final { return input != ModelInput::kTokens; }
  bool has_images(ModelInput) const final { return true; }
  OpenedSource open(const ModelTraits& /*model*/, uint64_t /*seed*/, bool need_train) const final {
    return open_images(need_train);
  }
  AssumedData assume(const MissingFile& missing) const override {
    return missing.with_outputs_of_model("classes");
  }

 protected:
  // Throws DataError that names the file.
  virtual ImageStores open_images(bool need_train) const = 0;
};

}  // namespace lockstep
