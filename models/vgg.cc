// VGG-11, 13, 16 and 19 (Simonyan and Zisserman, 2014, configurations A, B, D and E), with or
// without batch norms. Tensor names and initial weights are torchvision's.
//
// The classifier's input is 7 x 7 pixels of 512 channels. If the images are not 224 x 224, adaptive
// average pooling brings their features to that size.
#include "models/image_model.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/dropout.h"

namespace lockstep::models {
namespace {

constexpr int64_t kSide = 7;
// The number of 3x3 convolutions in each stage. A 2x2 max pooling ends a stage.
struct Depth {
  int64_t depth;
  int64_t convolutions[5];
};
constexpr Depth kDepths[] = {
    {11, {1, 1, 2, 2, 2}}, {13, {2, 2, 2, 2, 2}}, {16, {2, 2, 3, 3, 3}}, {19, {2, 2, 4, 4, 4}}};
constexpr int64_t kChannels[] = {64, 128, 256, 512, 512};  // by stage

const Depth* find_depth(int64_t depth) {
  for (const Depth& known : kDepths) {
    if (known.depth == depth) return &known;
  }
  return nullptr;
}

class Vgg final : public ImageModel<VggConfig> {
 public:
  using ImageModel::ImageModel;

  void check() const override {
    if (find_depth(config().depth) == nullptr)
      config::refuse_value("model.vgg.depth", config().depth, "11, 13, 16, 19");
    if (config().sync_batch_norm && !config().batch_norm)
      config::refuse_value(
          "model.vgg.sync_batch_norm", "true", "false without model.vgg.batch_norm");
  }

 private:
  int64_t fewest_pixels() const override { return 32; }

  TensorId add_layers(ImageLayers& layers) const override {
    layers.synchronise_norms(config().sync_batch_norm);
    TensorId x = layers.images();
    int number = 0;  // index in torchvision's list of layers, which has activations and pools too
    const auto name = [&](int index) { return "features." + std::to_string(index); };
    for (size_t stage = 0; stage < std::size(kChannels); ++stage) {
      for (int64_t i = 0; i < find_depth(config().depth)->convolutions[stage]; ++i) {
        const ImageLayers::Conv conv = {
            .outputs = kChannels[stage],
            .kernel = 3,
            .padding = 1,
            .bias = true,
            .activation = config().batch_norm ? Activation::kNone : Activation::kRelu};
        x = layers.conv(name(number), x, conv, InitialWeights::kKaimingFanOut);
        if (config().batch_norm) x = layers.norm(name(number + 1), x, kNoTensor, Activation::kRelu);
        number += config().batch_norm ? 3 : 2;
      }
      x = layers.max_pool(name(number++), x, 2, 2);
    }
    x = layers.adaptive_avg_pool("avgpool", x, kSide);
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

}  // namespace lockstep::models
