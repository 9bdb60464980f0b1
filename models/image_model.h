#pragma once
// What the families have in common that take images and tell their class.

#include "models/image_layers.h"
#include "models/model.h"

namespace lockstep {

// The config's number of classes, or where that is 0 that of the data. Throws ConfigError where the
// data have more; `section` is the model's.
int64_t resolve_classes(int64_t configured, const ModelIo& io, const std::string& section);

// Of a config whose classes do not count: see registry.h.
ModelIo io_of_image_weights(const ModelConfig& model, const ExtentsOf& extents_of);

// Config has the fields `classes` and `label_smoothing`.
template <typename Config>
class ImageModel : public Model {
 public:
  explicit ImageModel(const Config& config) : config_(config) {}

  ModelTraits traits() const override {
    return {.input = ModelInput::kImages, .outputs = config_.classes, .outputs_field = "classes"};
  }

  ModelConfig resolve(const ModelIo& io) const final {
    Config config = config_;
    config.classes = resolve_classes(config.classes, io, Config::kName);
    check_images(io);
    return config;
  }

  ModelIo io_of_weights(const ExtentsOf& extents_of) const override {
    Config config = config_;
    config.classes = 1;
    return io_of_image_weights(config, extents_of);
  }

  Graph build(const ModelIo& io,
              int64_t lane_batch,
              int64_t /*tokens*/,
              const GraphOptions& options) const final {
    ImageLayers layers(io, lane_batch, options);
    const TensorId logits = add_layers(layers);
    return std::move(layers).finish(logits, config_.label_smoothing);
  }

 protected:
  // Throws ConfigError where the images are too small for the network, or of a size that its
  // classifier cannot take. By default it takes all: every window fits where all layers are padded.
  virtual void check_images(const ModelIo& /*io*/) const {}

  // From layers.images() to the logits (N, classes).
  virtual TensorId add_layers(ImageLayers& layers) const = 0;

  const Config& config() const { return config_; }

 private:
  Config config_;
};

}  // namespace lockstep
