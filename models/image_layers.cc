#include "models/image_layers.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/conv2d.h"
#include "runtime/graph/ops/image_normalize.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/pooling.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"

#include <cmath>

namespace lockstep::models {
namespace {

constexpr float kMomentum = 0.1f;  // of running statistics, PyTorch's default

}  // namespace

ImageLayers::ImageLayers(const ModelIo& io, int64_t lane_batch, const graph::GraphOptions& options)
    : builder_(options) {
  const TensorId pixels =
      builder_.input("images", {lane_batch, io.height, io.width, io.channels}, DType::kU8);
  if (options.purpose != graph::Purpose::kInference)
    labels_ = builder_.input("labels", {lane_batch}, DType::kI32);
  images_ = ops::image_normalize(builder_, "images.normalized", pixels, {io.mean, io.std});
}

TensorId ImageLayers::weight(const std::string& name,
                             Shape shape,
                             int64_t outputs,
                             InitialWeights initial) {
  const auto fan_in = static_cast<float>(shape.elements() / shape[0]);
  const auto area = static_cast<float>(shape.rank() == 4 ? shape[1] * shape[2] : 1);
  const auto fan_out = static_cast<float>(outputs) * area;
  graph::Initializer initializer;
  switch (initial) {
    case InitialWeights::kKaimingFanOut:
      initializer = {graph::Initializer::Kind::kNormal, std::sqrt(2 / fan_out)};
      break;
    case InitialWeights::kKaimingFanIn:
      initializer = {graph::Initializer::Kind::kNormal, std::sqrt(2 / fan_in)};
      break;
    case InitialWeights::kUniformFanIn:
      initializer = {graph::Initializer::Kind::kUniform, 1 / std::sqrt(fan_in)};
      break;
    case InitialWeights::kNormal001:
      initializer = {graph::Initializer::Kind::kNormal, 0.01f};
      break;
    case InitialWeights::kNormal002:
      initializer = {graph::Initializer::Kind::kNormal, 0.02f};
      break;
  }
  return builder_.parameter(name + ".weight", shape, initializer, true);
}

TensorId ImageLayers::bias(const std::string& name,
                           TensorId weight,
                           int64_t outputs,
                           InitialWeights initial) {
  const Shape& shape = builder_.graph().shape(weight);
  const auto fan_in = static_cast<float>(shape.elements() / shape[0]);
  const bool uniform =
      initial == InitialWeights::kUniformFanIn || initial == InitialWeights::kKaimingFanIn;
  const graph::Initializer initializer =
      uniform ? graph::Initializer{graph::Initializer::Kind::kUniform, 1 / std::sqrt(fan_in)}
              : graph::Initializer{graph::Initializer::Kind::kConstant, 0};
  return builder_.parameter(name + ".bias", {outputs}, initializer, false);
}

TensorId ImageLayers::conv(const std::string& name,
                           TensorId x,
                           const Conv& conv,
                           InitialWeights initial) {
  const Shape shape = {conv.outputs, conv.kernel, conv.kernel, channels(x) / conv.groups};
  const TensorId w = weight(name, shape, conv.outputs, initial);
  builder_.set_channels_last(w, shape);
  const TensorId b = conv.bias ? bias(name, w, conv.outputs, initial) : kNoTensor;
  graph::Conv2dAttributes attributes;
  attributes.stride = {conv.stride, conv.stride};
  attributes.padding = {conv.padding, conv.padding};
  attributes.groups = conv.groups;
  attributes.activation = conv.activation;
  return ops::conv2d(builder_, name, x, w, b, attributes);
}

TensorId ImageLayers::norm(const std::string& name,
                           TensorId x,
                           TensorId delta,
                           Activation activation,
                           float initial_gamma) {
  const Shape shape = {channels(x)};
  const auto constant = [&](const char* suffix, float value) {
    return builder_.parameter(
        name + suffix, shape, {graph::Initializer::Kind::kConstant, value}, false);
  };
  ops::BatchNormParameters parameters;
  parameters.gamma = constant(".weight", initial_gamma);
  parameters.beta = constant(".bias", 0);
  parameters.running_mean = builder_.running_statistic(name + ".running_mean", shape, 0, kMomentum);
  parameters.running_variance =
      builder_.running_statistic(name + ".running_var", shape, 1, kMomentum);
  graph::BatchNormAttributes attributes;
  attributes.activation = activation;
  attributes.synchronised = synchronised_;
  return ops::batch_norm(builder_, name, x, delta, parameters, attributes);
}

TensorId ImageLayers::linear(const std::string& name,
                             TensorId x,
                             int64_t outputs,
                             Activation activation,
                             InitialWeights initial) {
  const Shape shape = builder_.graph().shape(x);
  const int64_t inputs = shape.elements() / shape[0];
  const TensorId w = weight(name, {outputs, inputs}, outputs, initial);
  if (shape.rank() == 4) builder_.set_channels_last(w, {outputs, shape[1], shape[2], shape[3]});
  return ops::linear(builder_, name, x, w, bias(name, w, outputs, initial), activation);
}

TensorId ImageLayers::max_pool(
    const std::string& name, TensorId x, int64_t kernel, int64_t stride, int64_t padding) {
  graph::PoolAttributes attributes;
  attributes.kernel = {kernel, kernel};
  attributes.stride = {stride, stride};
  attributes.padding = {padding, padding};
  return ops::max_pool(builder_, name, x, attributes);
}

TensorId ImageLayers::avg_pool(const std::string& name,
                               TensorId x,
                               int64_t kernel,
                               int64_t stride) {
  graph::PoolAttributes attributes;
  attributes.kernel = {kernel, kernel};
  attributes.stride = {stride, stride};
  return ops::avg_pool(builder_, name, x, attributes);
}

TensorId ImageLayers::adaptive_avg_pool(const std::string& name, TensorId x, int64_t side) {
  const Shape& features = builder_.graph().shape(x);
  if (features[1] == side && features[2] == side) return x;
  return ops::adaptive_avg_pool(builder_, name, x, {side, side});
}

graph::Graph ImageLayers::finish(TensorId logits, float label_smoothing) && {
  if (labels_ == kNoTensor) {
    builder_.keep(logits);
  } else {
    ops::softmax_cross_entropy(
        builder_, logits, labels_, builder_.training() ? label_smoothing : 0);
  }
  return std::move(builder_).finish();
}

}  // namespace lockstep::models
