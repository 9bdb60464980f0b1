// AlexNet in one tower (Krizhevsky, "One weird trick for parallelizing convolutional neural
// networks", 2014), optionally with the local response norms of the 2012 paper. Tensor names and
// initial weights are torchvision's.
//
// The classifier's input is 6 x 6 pixels of 256 channels. If the images are not 224 x 224, adaptive
// average pooling brings their features to that size.
#include "models/image_model.h"
#include "runtime/graph/ops/dropout.h"
#include "runtime/graph/ops/local_response_norm.h"

namespace lockstep::models {
namespace {

constexpr int64_t kSide = 6;

class Alexnet final : public ImageModel<AlexnetConfig> {
 public:
  using ImageModel::ImageModel;

 private:
  // With fewer, nothing is left before the adaptive pooling.
  int64_t fewest_pixels() const override { return 63; }

  TensorId add_layers(ImageLayers& layers) const override {
    graph::GraphBuilder& builder = layers.builder();
    TensorId x = layers.images();
    const auto conv =
        [&](int number, int64_t outputs, int64_t kernel, int64_t stride, int64_t padding) {
          x = layers.conv("features." + std::to_string(number),
                          x,
                          {.outputs = outputs,
                           .kernel = kernel,
                           .stride = stride,
                           .padding = padding,
                           .bias = true,
                           .activation = Activation::kRelu},
                          InitialWeights::kUniformFanIn);
        };
    const auto pool = [&](int number) {
      const std::string name = "features." + std::to_string(number);
      if (config().local_response_norm && number < 12) {
        // The paper's alpha multiplies the sum over 5 channels; this op's alpha their mean.
        const graph::LocalResponseNormAttributes norm = {
            .size = 5, .alpha = 5e-4f, .beta = 0.75f, .k = 2};
        x = ops::local_response_norm(builder, name + ".norm", x, norm);
      }
      x = layers.max_pool(name, x, 3, 2);
    };
    conv(0, 64, 11, 4, 2);
    pool(2);
    conv(3, 192, 5, 1, 2);
    pool(5);
    conv(6, 384, 3, 1, 1);
    conv(8, 256, 3, 1, 1);
    conv(10, 256, 3, 1, 1);
    pool(12);

    x = layers.adaptive_avg_pool("avgpool", x, kSide);
    const auto dense = [&](const char* name, int64_t outputs, Activation activation) {
      x = layers.linear(name, x, outputs, activation, InitialWeights::kUniformFanIn);
    };
    x = ops::dropout(builder, "classifier.0", x, config().dropout);
    dense("classifier.1", 4096, Activation::kRelu);
    x = ops::dropout(builder, "classifier.3", x, config().dropout);
    dense("classifier.4", 4096, Activation::kRelu);
    dense("classifier.6", config().classes, Activation::kNone);
    return x;
  }
};

}  // namespace

template <>
std::unique_ptr<const Model> make_model(const AlexnetConfig& config) {
  return std::make_unique<Alexnet>(config);
}

}  // namespace lockstep::models
