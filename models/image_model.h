#pragma once
// The base class of the families that classify images.

#include "models/image_layers.h"
#include "models/model.h"

namespace lockstep::models {

// The config's number of classes or, if that is 0, the data's. Throws ConfigError if the data has
// more. `section` is the name of the model's config section.
int64_t resolve_classes(int64_t configured, const ModelIo& io, const std::string& section);

// Throws ConfigError if the images have fewer than `pixels` in a direction.
void require_pixels(const std::string& section, const ModelIo& io, int64_t pixels);

// Model::io_of_weights for image networks. The config's number of classes is ignored.
ModelIo io_of_image_weights(const ModelConfig& model, const ExtentsOf& extents_of);

// Config has the fields `classes` and `label_smoothing`.
template <typename Config>
class ImageModel : public Model {
 public:
  explicit ImageModel(const Config& config) : config_(config) {}

  config::ModelTraits traits() const override {
    config::ModelTraits traits{.input = config::ModelInput::kImages,
                               .outputs = config_.classes,
                               .outputs_field = "classes"};
    if constexpr (requires { config_.sync_batch_norm; }) {
      traits.normalises_lanes = !config_.sync_batch_norm;
      if constexpr (requires { config_.batch_norm; })
        traits.normalises_lanes = traits.normalises_lanes && config_.batch_norm;
    }
    return traits;
  }

  ModelConfig resolve(const ModelIo& io) const final {
    Config config = config_;
    config.classes = resolve_classes(config.classes, io, Config::kName);
    require_images(io);
    return config;
  }

  ModelIo io_of_weights(const ExtentsOf& extents_of) const override {
    Config config = config_;
    config.classes = 1;
    return io_of_image_weights(config, extents_of);
  }

  graph::Graph build(const ModelIo& io,
                     int64_t lane_batch,
                     int64_t /*tokens*/,
                     const graph::GraphOptions& options) const final {
    ImageLayers layers(io, lane_batch, options);
    const TensorId logits = add_layers(layers);
    return std::move(layers).finish(logits, config_.label_smoothing);
  }

 protected:
  // Throws ConfigError if the images are too small for the network or have a size that its
  // classifier cannot take.
  virtual void require_images(const ModelIo& io) const {
    require_pixels(Config::kName, io, fewest_pixels());
  }
  // The smallest height and width. By default every size is accepted: if all layers are padded,
  // every window fits.
  virtual int64_t fewest_pixels() const { return 0; }

  // Adds the layers that compute the logits (N, classes) from layers.images().
  virtual TensorId add_layers(ImageLayers& layers) const = 0;

  const Config& config() const { return config_; }

 private:
  Config config_;
};

}  // namespace lockstep::models
