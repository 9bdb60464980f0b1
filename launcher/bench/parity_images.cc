#include "launcher/bench/parity_images.h"

#include "runtime/graph/autodiff.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/conv2d.h"
#include "runtime/graph/ops/gated_activation.h"
#include "runtime/graph/ops/image_normalize.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/local_response_norm.h"
#include "runtime/graph/ops/pooling.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/rotary.h"
#include "runtime/graph/ops/row_norm.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"

namespace lockstep::launcher {
namespace {

class ImagesBuilder {
 public:
  explicit ImagesBuilder(const graph::GraphOptions& options) : builder_(options) {}

  graph::Graph build(int64_t lane_batch) {
    const TensorId pixels = builder_.input("images", {lane_batch, 27, 25, 3}, DType::kU8);
    const TensorId labels = builder_.input("labels", {lane_batch}, DType::kI32);
    TensorId x = ops::image_normalize(
        builder_, "normalize", pixels, {{0.5f, 0.4f, 0.3f}, {0.2f, 0.25f, 0.3f}});
    // A first layer as large networks have it, with bias and activation.
    x = conv("first", x, 16, {7, 5}, strided(2, {3, 2}, Activation::kRelu), true);
    x = ops::max_pool(builder_, "largest", x, {{3, 3}, {2, 2}, {1, 1}, true});
    const TensorId shortcut = x;
    x = norm("norm1", x, kNoTensor, Activation::kNone);
    graph::Conv2dAttributes grouped = strided(1, {1, 1}, Activation::kNone);
    grouped.groups = 2;
    // Without a bias: before a norm its gradient is zero except for rounding.
    x = conv("grouped", x, 16, {3, 3}, grouped, false);
    x = norm("norm2", x, shortcut, Activation::kNone);
    x = ops::local_response_norm(builder_, "response", x, {5, 1e-1f, 0.75f, 2});
    graph::Conv2dAttributes dilated = strided(1, {2, 2}, Activation::kTanh);
    dilated.dilation = {2, 2};
    x = conv("dilated", x, 24, {3, 3}, dilated, true);
    graph::Conv2dAttributes depthwise = strided(1, {1, 1}, Activation::kNone);
    depthwise.groups = 24;
    x = conv("depthwise", x, 24, {3, 3}, depthwise, false);
    x = ops::avg_pool(builder_, "mean", x, {{3, 2}, {2, 2}, {1, 1}, false});
    x = conv("pointwise", x, 80, {1, 1}, strided(1, {0, 0}, Activation::kNone), true);
    x = ops::gated_activation(builder_, "gated", x, Activation::kSilu);
    x = ops::rms_norm(builder_, "rms", x, kNoTensor, parameter("rms.weight", {40}), 1e-5f).second;
    // Pixels take the place of tokens. First with sizes that fill vectors, then without.
    x = ops::rotary(builder_,
                    "vectors",
                    x,
                    kNoTensor,
                    {.head_size = 40, .rotary_size = 16, .interleaved = true});
    x = ops::rotary(
        builder_, "pairs", x, kNoTensor, {.head_size = 10, .rotated_heads = 3, .rotary_size = 6});
    // Odd numbers of channels, so that nothing fills vectors.
    x = conv("odd", x, 9, {2, 3}, strided(1, {1, 1}, Activation::kRelu), true);
    x = conv("odd_pointwise", x, 11, {1, 1}, strided(1, {0, 0}, Activation::kNone), false);
    x = norm("norm3", x, kNoTensor, Activation::kRelu);
    const Shape all = builder_.shape(x);
    const Shape fewer = {all[0], (all[1] + 1) / 2, (all[2] + 1) / 2, all[3]};
    x = ops::slice(builder_, "fewer", x, {0, 0, 0, 0}, {1, 2, 2, 1}, fewer);
    x = ops::pad(builder_, "wider", x, {0, 0, 0, 2}, {0, 0, 0, 3}, 0);
    const TensorId weight = parameter("head.weight", {kImagesClasses, columns(x)});
    x = ops::linear(
        builder_, "head", x, weight, parameter("head.bias", {kImagesClasses}), Activation::kNone);
    ops::softmax_cross_entropy(builder_, x, labels, 0);
    graph::Graph graph = std::move(builder_).finish();
    if (graph.purpose == graph::Purpose::kTraining) graph::differentiate(graph);
    return graph;
  }

 private:
  static graph::Conv2dAttributes strided(int64_t stride,
                                         graph::Extent2d padding,
                                         Activation activation) {
    graph::Conv2dAttributes attributes;
    attributes.stride = {stride, stride};
    attributes.padding = padding;
    attributes.activation = activation;
    return attributes;
  }
  TensorId parameter(const std::string& name, Shape shape) {
    return builder_.parameter(name, shape, {}, true);
  }
  int64_t columns(TensorId x) const {
    const Shape& shape = builder_.graph().shape(x);
    return shape.elements() / shape[0];
  }
  TensorId conv(const std::string& name,
                TensorId x,
                int64_t outputs,
                graph::Extent2d kernel,
                const graph::Conv2dAttributes& attributes,
                bool bias) {
    const int64_t channels = builder_.graph().shape(x).columns() / attributes.groups;
    const TensorId weight =
        parameter(name + ".weight", {outputs, kernel.height, kernel.width, channels});
    return ops::conv2d(builder_,
                       name,
                       x,
                       weight,
                       bias ? parameter(name + ".bias", {outputs}) : kNoTensor,
                       attributes);
  }
  TensorId norm(const std::string& name, TensorId x, TensorId delta, Activation activation) {
    const Shape shape = {builder_.graph().shape(x).columns()};
    ops::BatchNormParameters parameters;
    parameters.gamma = parameter(name + ".weight", shape);
    parameters.beta = parameter(name + ".bias", shape);
    parameters.running_mean = builder_.running_statistic(name + ".mean", shape, 0, 0.1f);
    parameters.running_variance = builder_.running_statistic(name + ".var", shape, 1, 0.1f);
    graph::BatchNormAttributes attributes;
    attributes.activation = activation;
    attributes.synchronised = true;  // if there are several lanes
    return ops::batch_norm(builder_, name, x, delta, parameters, attributes);
  }

  graph::GraphBuilder builder_;
};

}  // namespace

graph::Graph images_graph(int64_t lane_batch, const graph::GraphOptions& options) {
  return ImagesBuilder(options).build(lane_batch);
}

}  // namespace lockstep::launcher
