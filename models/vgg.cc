// VGG-16 (Simonyan and Zisserman, 2014, configuration D), with or without batch norms; names and
// initial weights as torchvision's.
//
// The classifier looks at 7 x 7 pixels of 512 channels: images of 224, or of a multiple, whose
// features are averaged down. Of smaller images it looks at what is left of them.
#include "models/image_model.h"
#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/dropout.h"

namespace lockstep {
namespace {

constexpr int64_t kSide = 7;
// Channels of the 3x3 convolutions; 0 stands for a 2x2 maximum.
constexpr int64_t kLayers[] = {
    64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0};

class Vgg final : public ImageModel<VggConfig> {
 public:
  using ImageModel::ImageModel;

  void check() const override {
    if (config().sync_batch_norm && !config().batch_norm)
      refuse_value("model.vgg.sync_batch_norm", "true", "false without model.vgg.batch_norm");
  }

 private:
  void check_images(const ModelIo& io) const override {
    for (const int64_t pixels : {io.height, io.width}) {
      const int64_t side = pixels / 32;
      if (side >= 1 && (side < kSide || side % kSide == 0) &&
          (io.height / 32 < kSide) == (io.width / 32 < kSide))
        continue;
      throw ConfigError(
          "model.vgg: images are {} x {}; allowed: 32 to 223 pixels, or a multiple of 224, in both "
          "directions",
          io.height,
          io.width);
    }
  }

  TensorId add_layers(ImageLayers& layers) const override {
    layers.synchronise_norms(config().sync_batch_norm);
    TensorId x = layers.images();
    int number = 0;  // in torchvision's list of layers, which has activations and pools too
    for (const int64_t outputs : kLayers) {
      const auto name = [&](int at) { return "features." + std::to_string(at); };
      if (outputs == 0) {
        x = layers.max_pool(name(number++), x, 2, 2);
        continue;
      }
      const ImageLayers::Conv conv = {
          .outputs = outputs,
          .kernel = 3,
          .padding = 1,
          .bias = true,
          .activation = config().batch_norm ? Activation::kNone : Activation::kRelu};
      x = layers.conv(name(number), x, conv, InitialWeights::kKaimingFanOut);
      if (config().batch_norm) x = layers.norm(name(number + 1), x, kNoTensor, Activation::kRelu);
      number += config().batch_norm ? 3 : 2;
    }
    x = layers.average_down("avgpool", x, kSide);
    const auto dense = [&](const char* name, int64_t outputs, Activation activation) {
      x = layers.linear(name, x, outputs, activation, InitialWeights::kNormal001);
    };
    dense("classifier.0", 4096, Activation::kRelu);
    x = ops::dropout(layers.builder(), "classifier.2", x, config().dropout);
    dense("classifier.3", 4096, Activation::kRelu);
    x = ops::dropout(layers.builder(), "classifier.5", x, config().dropout);
    dense("classifier.6", config().classes, Activation::kNone);
    return x;
  }
};

}  // namespace

template <>
std::unique_ptr<const Model> make_model(const VggConfig& config) {
  return std::make_unique<Vgg>(config);
}

}  // namespace lockstep
