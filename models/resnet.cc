// Residual networks: He et al., "Deep Residual Learning for Image Recognition" (2015).
//
// The ImageNet depths (18, 34: two 3x3 convolutions a block; 50, 101, 152: a bottleneck 1x1, 3x3,
// 1x1 with the stride in the 3x3) have four stages of 64, 128, 256 and 512 channels, and
// torchvision's tensor names and initial weights. The CIFAR depths (20, 32, 56, 110 = 6 n + 2) have
// three stages of 16, 32 and 64 channels with n blocks each; tensor names and initial weights are
// those of the reimplementation by Y. Idelbayev.
//
// ResNeXt (Xie et al., "Aggregated Residual Transformations for Deep Neural Networks", 2016) has
// the bottleneck's 3x3 convolution in groups.
#include <algorithm>

#include "models/image_model.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/pooling.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/window.h"

namespace lockstep::models {
namespace {

constexpr int64_t kImagenetDepths[] = {18, 34, 50, 101, 152}, kBottleneckDepths[] = {50, 101, 152},
                  kCifarDepths[] = {20, 32, 56, 110};

template <typename Depths>
bool is_one_of(const Depths& depths, int64_t depth) {
  return std::ranges::find(depths, depth) != std::end(depths);
}

class ResnetBuilder {
 public:
  ResnetBuilder(const ResnetConfig& config, ImageLayers& layers)
      : config_(config),
        cifar_(!is_one_of(kImagenetDepths, config.depth)),
        bottleneck_(is_one_of(kBottleneckDepths, config.depth)),
        initial_(cifar_ ? InitialWeights::kKaimingFanIn : InitialWeights::kKaimingFanOut),
        layers_(layers) {}

  TensorId logits() {
    layers_.synchronise_norms(config_.sync_batch_norm);
    TensorId x = stem(layers_.images());
    int64_t width = cifar_ ? 16 : 64;
    int stage = 1;
    for (const int64_t blocks : stages()) {
      for (int64_t i = 0; i < blocks; ++i) {
        const std::string name = "layer" + std::to_string(stage) + "." + std::to_string(i) + ".";
        x = block(name, x, width, i == 0 && stage > 1 ? 2 : 1);
      }
      width *= 2;
      ++stage;
    }
    x = ops::global_avg_pool(layers_.builder(), "avgpool", x);
    return layers_.linear(cifar_ ? "linear" : "fc",
                          x,
                          config_.classes,
                          Activation::kNone,
                          cifar_ ? InitialWeights::kKaimingFanIn : InitialWeights::kUniformFanIn);
  }

 private:
  std::vector<int64_t> stages() const {
    switch (config_.depth) {
      case 18: return {2, 2, 2, 2};
      case 34:
      case 50: return {3, 4, 6, 3};
      case 101: return {3, 4, 23, 3};
      case 152: return {3, 8, 36, 3};
      default: return std::vector<int64_t>(3, (config_.depth - 2) / 6);
    }
  }

  TensorId conv(const std::string& name,
                TensorId x,
                int64_t outputs,
                int64_t kernel,
                int64_t stride,
                int64_t groups = 1) {
    return layers_.conv(name,
                        x,
                        {.outputs = outputs,
                         .kernel = kernel,
                         .stride = stride,
                         .padding = kernel / 2,
                         .groups = groups},
                        initial_);
  }

  TensorId stem(TensorId x) {
    const bool small = cifar_ || config_.stem == ResnetConfig::Stem::kCifar;
    x = conv("conv1", x, cifar_ ? 16 : 64, small ? 3 : 7, small ? 1 : 2);
    x = layers_.norm("bn1", x, kNoTensor, Activation::kRelu);
    return small ? x : layers_.max_pool("maxpool", x, 3, 2, 1);
  }

  // The branch's last norm adds the shortcut and activates the sum.
  TensorId block(const std::string& name, TensorId x, int64_t width, int64_t stride) {
    const float last_gamma = config_.zero_init_gamma ? 0 : 1;
    const int64_t outputs = bottleneck_ ? 4 * width : width;
    // Channels of a bottleneck's 3x3 convolution. ResNeXt has more, in groups.
    const int64_t inner =
        bottleneck_ ? width * config_.width_per_group / 64 * config_.groups : width;
    TensorId y = bottleneck_ ? conv(name + "conv1", x, inner, 1, 1)
                             : conv(name + "conv1", x, inner, 3, stride);
    y = layers_.norm(name + "bn1", y, kNoTensor, Activation::kRelu);
    y = conv(name + "conv2", y, inner, 3, bottleneck_ ? stride : 1, config_.groups);
    if (bottleneck_) {
      y = layers_.norm(name + "bn2", y, kNoTensor, Activation::kRelu);
      y = conv(name + "conv3", y, outputs, 1, 1);
    }
    const std::string last = name + (bottleneck_ ? "bn3" : "bn2");
    const TensorId delta = shortcut(name, x, outputs, stride);
    return layers_.norm(last, y, delta, Activation::kRelu, last_gamma);
  }

  TensorId shortcut(const std::string& name, TensorId x, int64_t outputs, int64_t stride) {
    const int64_t inputs = layers_.channels(x);
    if (stride == 1 && inputs == outputs) return x;
    if (config_.shortcut == ResnetConfig::Shortcut::kPadded)
      return padded(name + "shortcut", x, outputs, stride);
    const std::string prefix = name + (cifar_ ? "shortcut." : "downsample.");
    const TensorId projected = conv(prefix + "0", x, outputs, 1, stride);
    return layers_.norm(prefix + "1", projected, kNoTensor, Activation::kNone);
  }

  // The shortcut without parameters of He et al. (option A): every stride-th pixel in both
  // directions, with channels of zeros before and after x's.
  TensorId padded(const std::string& name, TensorId x, int64_t outputs, int64_t stride) {
    const Shape shape = layers_.builder().shape(x);
    const auto strided = [&](int source) {
      graph::ViewAxis axis =
          graph::ViewAxis::first(source, graph::window_count(shape[source], 1, stride, 0));
      axis.move = stride;
      return axis;
    };
    graph::ViewAxis channels = graph::ViewAxis::first(3, outputs);
    channels.begin = (outputs - shape[3]) / 2;
    channels.end = channels.begin + shape[3];
    return ops::rearrange(layers_.builder(),
                          name,
                          x,
                          {graph::ViewAxis::first(0, shape[0]), strided(1), strided(2), channels});
  }

  const ResnetConfig& config_;
  bool cifar_, bottleneck_;
  InitialWeights initial_;
  ImageLayers& layers_;
};

class Resnet final : public ImageModel<ResnetConfig> {
 public:
  using ImageModel::ImageModel;

  void check() const override {
    const ResnetConfig& resnet = config();
    const bool imagenet = is_one_of(kImagenetDepths, resnet.depth);
    if (!imagenet && !is_one_of(kCifarDepths, resnet.depth)) {
      config::refuse_value("model.resnet.depth",
                           resnet.depth,
                           "18, 34, 50, 101, 152 (ImageNet), 20, 32, 56, 110 (CIFAR)");
    }
    if (resnet.shortcut == ResnetConfig::Shortcut::kPadded && imagenet) {
      config::refuse_value("model.resnet.shortcut",
                           "PADDED",
                           "PROJECTION with model.resnet.depth {}; PADDED with 20, 32, 56, 110",
                           resnet.depth);
    }
    const ResnetConfig defaults;
    if (is_one_of(kBottleneckDepths, resnet.depth)) return;
    constexpr const char* kOnly = "{} with model.resnet.depth {}; others with 50, 101 and 152";
    if (resnet.groups != defaults.groups)
      config::refuse_value(
          "model.resnet.groups", resnet.groups, kOnly, defaults.groups, resnet.depth);
    if (resnet.width_per_group != defaults.width_per_group)
      config::refuse_value("model.resnet.width_per_group",
                           resnet.width_per_group,
                           kOnly,
                           defaults.width_per_group,
                           resnet.depth);
  }

  // torchvision names the last layer of every residual network "fc". In the CIFAR networks here it
  // is "linear", as in Idelbayev's files.
  config::ModelTraits traits() const override {
    config::ModelTraits traits = ImageModel::traits();
    traits.torchvision_names = {{"linear.", "fc."}};
    traits.known_by = "layer1.0.conv1.weight";
    return traits;
  }

 private:
  TensorId add_layers(ImageLayers& layers) const override {
    return ResnetBuilder(config(), layers).logits();
  }
};

}  // namespace

template <>
std::unique_ptr<const Model> make_model(const ResnetConfig& config) {
  return std::make_unique<Resnet>(config);
}

}  // namespace lockstep::models
