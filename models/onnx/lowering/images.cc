// Convolutions, their norms and pools, over images (N, H, W, C).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/onnx/lowering/image_nodes.h"
#include "models/onnx/lowering/layers.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/conv2d.h"
#include "runtime/graph/ops/pooling.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

constexpr int64_t kMostPixels = 256;  // of a largest one's window: which it was is kept in a byte

// A window over the two axes of an image.
struct Window {
  Extent2d kernel, stride, dilation;
  int64_t before[2] = {0, 0}, after[2] = {0, 0};  // of padding

  bool even() const { return before[0] == after[0] && before[1] == after[1]; }
};

// As the attributes say. What auto_pad adds, and ceil_mode behind the image, follows from the extents of
// `output`.
Window window_of(const Node& node, const Extents& input, const Extents& output, Extent2d kernel) {
  Window window{.kernel = kernel,
                .stride = extent2d(node, node.integers("strides", {1, 1}), "strides"),
                .dilation = extent2d(node, node.integers("dilations", {1, 1}), "dilations")};
  const std::string automatic = node.text("auto_pad", "NOTSET");
  const std::vector<int64_t> pads = node.integers("pads", {0, 0, 0, 0});
  if (pads.size() != 4) refuse(node, "pads: must be 4 numbers");
  const int64_t kernels[] = {kernel.height, kernel.width},
                strides[] = {window.stride.height, window.stride.width},
                dilations[] = {window.dilation.height, window.dilation.width};
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t missing =
        std::max<int64_t>(0,
                          (output[axis + 2] - 1) * strides[axis] +
                              (kernels[axis] - 1) * dilations[axis] + 1 - input[axis + 2]);
    if (automatic.starts_with("SAME"))
      window.before[axis] = automatic == "SAME_UPPER" ? missing / 2 : missing - missing / 2;
    else if (automatic == "NOTSET")
      window.before[axis] = pads[axis];
    window.after[axis] = missing - std::min(missing, window.before[axis]);
    if (automatic == "NOTSET") window.after[axis] = std::max(window.after[axis], pads[axis + 2]);
  }
  return window;
}

// x (N, H, W, C) with the window's padding around it, where both sides differ; which the window then has
// no more.
TensorId pad_unevenly(
    Lowering& lowering, const Node& node, TensorId x, float value, Window& window) {
  if (window.even()) return x;
  const TensorId padded = ops::pad(lowering.builder(),
                                   lowering.name_of(node) + ".padded",
                                   x,
                                   {0, window.before[0], window.before[1], 0},
                                   {0, window.after[0], window.after[1], 0},
                                   value);
  for (int axis = 0; axis < 2; ++axis) window.before[axis] = window.after[axis] = 0;
  return padded;
}

void set_images(Lowering& lowering, const Node& node, TensorId y) {
  lowering.set(node.output(0), y, /*channels_last=*/true);
}

// Windows may reach beyond the padding where ceil_mode says so.
PoolAttributes pool_of(Lowering& lowering, const Node& node) {
  require_images(lowering, node);
  const Extents &from = lowering.value(node.input(0)).extents,
                &to = lowering.value(node.output(0)).extents;
  const Window window =
      window_of(node, from, to, extent2d(node, node.integers("kernel_shape"), "kernel_shape"));
  const std::vector<int64_t> pads = node.integers("pads", {0, 0, 0, 0});
  const bool listed = node.text("auto_pad", "NOTSET") == "NOTSET";
  PoolAttributes attributes;
  attributes.kernel = window.kernel;
  attributes.stride = window.stride;
  attributes.dilation = window.dilation;
  attributes.padding = {window.before[0], window.before[1]};
  attributes.behind = {listed ? pads[2] : window.after[0], listed ? pads[3] : window.after[1]};
  attributes.outputs = {to[2], to[3]};
  const PoolAttributes& p = attributes;
  if (!windows_see_pixels(
          from[2], to[2], p.kernel.height, p.stride.height, p.dilation.height, p.padding.height) ||
      !windows_see_pixels(
          from[3], to[3], p.kernel.width, p.stride.width, p.dilation.width, p.padding.width))
    refuse(node, "pads or ceil_mode: a window would lie in the padding alone");
  return attributes;
}

}  // namespace

void lower_conv(Lowering& lowering, const Node& node) {
  require_images(lowering, node);
  const TensorId weight = weight_of_images(lowering, node);
  GraphBuilder& builder = lowering.builder();
  const Shape extents = builder.shape(weight);
  Window window = window_of(node,
                            lowering.value(node.input(0)).extents,
                            lowering.value(node.output(0)).extents,
                            {extents[1], extents[2]});
  const TensorId x = pad_unevenly(lowering, node, lowering.channels_last(node.input(0)), 0, window);
  const TensorId bias = bias_of_images(lowering, node);
  Conv2dAttributes attributes;
  attributes.stride = window.stride;
  attributes.padding = {window.before[0], window.before[1]};
  attributes.dilation = window.dilation;
  attributes.groups = node.integer("group", 1);
  set_images(
      lowering, node, ops::conv2d(builder, lowering.name_of(node), x, weight, bias, attributes));
}

// With the activation that alone reads it, where that is ReLU.
void lower_batch_normalization(Lowering& lowering, const Node& node) {
  const Lowering::Source scale = lowering.source_of(node.input(1)),
                         bias = lowering.source_of(node.input(2));
  if (scale.value < 0 || bias.value < 0)
    refuse(node, "scale and B: must be parameters of the file");
  const float momentum = 1 - node.number("momentum", 0.9f);
  ops::BatchNormParameters parameters;
  parameters.gamma = lowering.unshared_parameter(scale.value);
  parameters.beta = lowering.unshared_parameter(bias.value);
  parameters.running_mean =
      lowering.running_statistic(node, lowering.origin_of(node.input(3)), momentum);
  parameters.running_variance =
      lowering.running_statistic(node, lowering.origin_of(node.input(4)), momentum);
  BatchNormAttributes attributes;
  attributes.epsilon = node.number("epsilon", 1e-5f);
  attributes.synchronised = lowering.synchronised_norms();
  int output = node.output(0);
  const Node* reader = lowering.only_reader(output);
  if (reader != nullptr && reader->op == "Relu" && reader->domain.empty()) {
    attributes.activation = Activation::kRelu;
    lowering.pass_over(*reader);
    output = reader->output(0);
  }
  const bool images = lowering.value(node.input(0)).extents.size() > 2;
  const TensorId x = images ? lowering.channels_last(node.input(0)) : lowering.plain(node.input(0));
  const TensorId y = ops::batch_norm(
      lowering.builder(), lowering.name_of(node), x, kNoTensor, parameters, attributes);
  lowering.set(output, y, images);
}

void lower_max_pool(Lowering& lowering, const Node& node) {
  const std::vector<int64_t> kernel = node.integers("kernel_shape");
  if (elements(kernel) > kMostPixels)
    refuse(node,
           fmt::format(
               "kernel_shape: has {} pixels; allowed: at most {}", elements(kernel), kMostPixels));
  set_images(lowering,
             node,
             ops::max_pool(lowering.builder(),
                           lowering.name_of(node),
                           lowering.channels_last(node.input(0)),
                           pool_of(lowering, node)));
}

void lower_average_pool(Lowering& lowering, const Node& node) {
  PoolAttributes attributes = pool_of(lowering, node);
  if (attributes.dilation != Extent2d{})
    refuse(node, "dilations: must be 1; means over others are not known here");
  attributes.count_include_pad = node.integer("count_include_pad", 0) != 0;
  set_images(lowering,
             node,
             ops::avg_pool(lowering.builder(),
                           lowering.name_of(node),
                           lowering.channels_last(node.input(0)),
                           attributes));
}

}  // namespace lockstep::onnx
