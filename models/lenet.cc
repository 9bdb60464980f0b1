// LeNet-5 (LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998): 5x5
// convolutions of 6 and 16 channels with 2x2 pools, and linear layers of 120, 84 and the classes.
// Made for images of 32 x 32; those of 28 x 28 are padded to them.
#include "models/image_model.h"
#include "runtime/config/limits.h"

namespace lockstep::models {
namespace {

class Lenet final : public ImageModel<LenetConfig> {
 public:
  using ImageModel::ImageModel;

  void check() const override {
    const Activation activation = config().activation;
    if (activation == Activation::kRelu || activation == Activation::kTanh) return;
    config::refuse_value("model.lenet.activation", name_of(activation), "RELU or TANH");
  }

 private:
  int64_t fewest_pixels() const override { return 28; }

  TensorId add_layers(ImageLayers& layers) const override {
    const auto conv = [&](const char* name, TensorId x, int64_t outputs, int64_t padding) {
      return layers.conv(name,
                         x,
                         {.outputs = outputs,
                          .kernel = 5,
                          .padding = padding,
                          .bias = true,
                          .activation = config().activation},
                         InitialWeights::kUniformFanIn);
    };
    const auto pool = [&](const char* name, TensorId x) {
      return config().pooling == LenetConfig::Pooling::kMax ? layers.max_pool(name, x, 2, 2)
                                                            : layers.avg_pool(name, x, 2, 2);
    };
    const auto dense = [&](const char* name, TensorId x, int64_t outputs, Activation activation) {
      return layers.linear(name, x, outputs, activation, InitialWeights::kUniformFanIn);
    };
    const Shape images = layers.builder().graph().shape(layers.images());  // (N, H, W, C)
    const bool small = images[1] < 32 || images[2] < 32;
    TensorId x = pool("pool1", conv("conv1", layers.images(), 6, small ? 2 : 0));
    x = pool("pool2", conv("conv2", x, 16, 0));
    x = dense("fc1", x, 120, config().activation);
    x = dense("fc2", x, 84, config().activation);
    return dense("fc3", x, config().classes, Activation::kNone);
  }
};

}  // namespace

template <>
std::unique_ptr<const Model> make_model(const LenetConfig& config) {
  return std::make_unique<Lenet>(config);
}

}  // namespace lockstep::models
