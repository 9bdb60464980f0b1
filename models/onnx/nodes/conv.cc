// Convolutions.
#include <algorithm>
#include <utility>
#include <vector>

#include "models/onnx/nodes/image_nodes.h"
#include "models/onnx/nodes/node_type.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/conv2d.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

// The weight is (outputs, inputs of a group, ...).
std::vector<Form> rule_conv(const NodeView& node) {
  node.require_inputs(2, 3);
  require_image(node);
  node.require_rank(1, node.rank(0), node.rank(0));
  node.require_same_type(0, 1);
  const Extents& image = node.extents(0);
  const Extents& weight = node.extents(1);
  const int64_t group = node.integer("group", 1, 1, kMaxWindow);
  if (image[1] != weight[1] * group || weight[0] % group != 0)
    node.refuse("its {} channels, weight of extents {} and {} groups do not match",
                image[1],
                to_string(weight),
                group);
  require_bias(node, weight[0]);
  const std::vector<int64_t> kernel(weight.begin() + 2, weight.end());
  if (node.node().has("kernel_shape") && node.node().integers("kernel_shape") != kernel)
    node.refuse("attribute kernel_shape is {}; its weight has {}",
                to_string(node.node().integers("kernel_shape")),
                to_string(kernel));
  const WindowAttributes window = window_of(node, kernel);
  Form to{node.type(0), {image[0], weight[0]}};
  for (size_t i = 0; i < kernel.size(); ++i)
    to.extents.push_back(window_positions(node, window, i, image[2 + i], false));
  return {to};
}

// Pads x ([N, D,] H, W, C) as far as the native convolution cannot: along the depth, and along
// height and width if the padding differs at both ends. Removes that padding from the window.
TensorId pad_images(Lowering& lowering, const Node& node, TensorId x, Window& window) {
  const bool uneven = window[1].before != window[1].after || window[2].before != window[2].after;
  const auto rank = static_cast<size_t>(lowering.builder().shape(x).rank());
  std::vector<int64_t> before(rank, 0), after(rank, 0);
  for (size_t axis = uneven ? 3 : 1; axis-- > 0;) {
    before[rank - 4 + axis] = std::exchange(window[axis].before, 0);
    after[rank - 4 + axis] = std::exchange(window[axis].after, 0);
  }
  if (std::ranges::count(before, 0) + std::ranges::count(after, 0) ==
      static_cast<std::ptrdiff_t>(2 * rank))
    return x;
  return ops::pad(lowering.builder(), lowering.name_of(node) + ".padded", x, before, after, 0);
}

// Turns a convolution of volumes into one of images (im2col along the depth): x (N, D, H, W, C)
// becomes (N D', H, W, KD C), where each group of channels has the channels of all KD depths in a
// window.
TensorId depths_beside_channels(
    Lowering& lowering, const Node& node, TensorId x, const AxisWindow& depth, int64_t groups) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const Shape shape = builder.shape(x);
  const int64_t images = shape[0] * depth.to, group_channels = shape[4] / groups;
  std::vector<TensorId> taps;
  for (int64_t tap = 0; tap < depth.kernel; ++tap) {
    const TensorId seen = depth.kernel == 1 && depth.stride == 1
                              ? x
                              : ops::slice(builder,
                                           name + ".depth",
                                           x,
                                           {0, tap * depth.dilation, 0, 0, 0},
                                           {1, depth.stride, 1, 1, 1},
                                           {shape[0], depth.to, shape[2], shape[3], shape[4]});
    taps.push_back(ops::reshape(
        builder, name + ".groups", seen, {images, shape[2], shape[3], groups, group_channels}));
  }
  const TensorId all = taps.size() == 1 ? taps[0] : ops::concat(builder, name + ".depths", taps, 4);
  return ops::reshape(
      builder, name + ".images", all, {images, shape[2], shape[3], depth.kernel * shape[4]});
}

void lower_conv(Lowering& lowering, const Node& node) {
  require_images(lowering, node);
  const TensorId weight = weight_of_images(lowering, node);
  const Extents& kernel = lowering.value(node.input(1)).extents;
  Window window = window_of(lowering, node, {kernel.begin() + 2, kernel.end()});
  graph::Conv2dAttributes attributes;
  attributes.groups = node.integer("group", 1);
  TensorId x = pad_images(lowering, node, images_of(lowering, node.input(0)), window);
  const bool volumes = kernel.size() == 5;
  if (volumes) x = depths_beside_channels(lowering, node, x, window[0], attributes.groups);
  attributes.stride = {window[1].stride, window[2].stride};
  attributes.padding = {window[1].before, window[2].before};
  attributes.dilation = {window[1].dilation, window[2].dilation};
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const TensorId bias = bias_of_images(lowering, node);
  TensorId y = ops::conv2d(builder, name, x, weight, bias, attributes);
  if (volumes) {
    const Shape shape = builder.shape(y);
    const int64_t depth = window[0].to;
    y = ops::reshape(
        builder, name + ".volume", y, {shape[0] / depth, depth, shape[1], shape[2], shape[3]});
  }
  set_images(lowering, node, y);
}

constexpr NodeType kNodes[] = {
    {"Conv", rule_conv, lower_conv},
};

}  // namespace

std::span<const NodeType> convolution_nodes() { return kNodes; }

}  // namespace lockstep::onnx
