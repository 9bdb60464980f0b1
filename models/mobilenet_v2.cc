// MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018) with
// width multiplier 1. Tensor names and initial weights are torchvision's.
//
// A block expands its channels with a 1x1 convolution, applies a 3x3 depthwise convolution, and
// projects with a 1x1 convolution that has no activation. If input and output have the same shape,
// the block's input is added to its output.
#include "models/image_model.h"
#include "runtime/graph/ops/activation.h"
#include "runtime/graph/ops/dropout.h"
#include "runtime/graph/ops/pooling.h"

namespace lockstep::models {
namespace {

// Consecutive blocks; `stride` is the first block's, the others have stride 1.
struct Stage {
  int64_t expansion, outputs, blocks, stride;
};
constexpr Stage kStages[] = {{1, 16, 1, 1},
                             {6, 24, 2, 2},
                             {6, 32, 3, 2},
                             {6, 64, 4, 2},
                             {6, 96, 3, 1},
                             {6, 160, 3, 2},
                             {6, 320, 1, 1}};
constexpr int64_t kFirst = 32, kLast = 1280;

class MobilenetV2 final : public ImageModel<MobilenetV2Config> {
 public:
  using ImageModel::ImageModel;

 private:
  TensorId add_layers(ImageLayers& layers) const override {
    layers.synchronise_norms(config().sync_batch_norm);
    int number = 0;  // index in torchvision's list of layers
    const auto name = [&] { return "features." + std::to_string(number++) + "."; };
    const std::string stem = name();
    TensorId x = activated(
        layers, stem, layers.images(), {.outputs = kFirst, .kernel = 3, .stride = 2, .padding = 1});
    for (const Stage& stage : kStages) {
      for (int64_t i = 0; i < stage.blocks; ++i)
        x = block(layers, name() + "conv.", x, stage, i == 0 ? stage.stride : 1);
    }
    x = activated(layers, name(), x, {.outputs = kLast, .kernel = 1});
    x = ops::global_avg_pool(layers.builder(), "avgpool", x);
    x = ops::dropout(layers.builder(), "classifier.0", x, config().dropout);
    return layers.linear(
        "classifier.1", x, config().classes, Activation::kNone, InitialWeights::kNormal001);
  }

  // Convolution, norm and ReLU6.
  static TensorId activated(ImageLayers& layers,
                            const std::string& name,
                            TensorId x,
                            const ImageLayers::Conv& conv) {
    x = layers.conv(name + "0", x, conv, InitialWeights::kKaimingFanOut);
    x = layers.norm(name + "1", x, kNoTensor, Activation::kNone);
    return ops::activation(layers.builder(), name + "2", x, Activation::kRelu6);
  }

  static TensorId block(ImageLayers& layers,
                        const std::string& name,
                        TensorId x,
                        const Stage& stage,
                        int64_t stride) {
    const int64_t inputs = layers.channels(x), width = inputs * stage.expansion;
    int number = 0;
    const auto next = [&] { return name + std::to_string(number++); };
    TensorId y = x;
    if (stage.expansion > 1)
      y = activated(layers, next() + ".", y, {.outputs = width, .kernel = 1});
    y = activated(layers,
                  next() + ".",
                  y,
                  {.outputs = width, .kernel = 3, .stride = stride, .padding = 1, .groups = width});
    y = layers.conv(
        next(), y, {.outputs = stage.outputs, .kernel = 1}, InitialWeights::kKaimingFanOut);
    const bool residual = stride == 1 && inputs == stage.outputs;
    return layers.norm(next(), y, residual ? x : kNoTensor, Activation::kNone);
  }
};

}  // namespace

template <>
std::unique_ptr<const Model> make_model(const MobilenetV2Config& config) {
  return std::make_unique<MobilenetV2>(config);
}

}  // namespace lockstep::models
