// Convolutions, and transposed ones.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "models/onnx/nodes/image_nodes.h"
#include "models/onnx/nodes/lowering/pointwise.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/conv2d.h"
#include "runtime/graph/ops/conv_transpose2d.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

// The weight is (outputs, inputs of a group, ...).
std::vector<Form> rule_conv(const NodeView& node) {
  checked_groups(node, /*transposed=*/false);
  const Extents &image = node.extents(0), &weight = node.extents(1);
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

// The weight is (inputs, outputs of a group, ...).
std::vector<Form> rule_conv_transpose(const NodeView& node) {
  const int64_t group = checked_groups(node, /*transposed=*/true);
  const Extents &image = node.extents(0), &weight = node.extents(1);
  const int64_t channels = weight[1] * group;
  require_bias(node, channels);
  const size_t axes = weight.size() - 2;
  const WindowAttributes window = window_of(node, {weight.begin() + 2, weight.end()});
  const std::vector<int64_t> more = node.integers("output_padding", axes, 0, 0, kMaxWindow);
  Form to{node.type(0), {image[0], channels}};
  for (size_t i = 0; i < axes; ++i) {
    const int64_t reach = (window.kernel[i] - 1) * window.dilations[i] + 1;
    int64_t extent = window.strides[i] * (image[2 + i] - 1) + more[i] + reach;
    if (window.auto_pad == "NOTSET") extent -= window.pads[i] + window.pads[axes + i];
    if (window.auto_pad.starts_with("SAME")) extent = window.strides[i] * image[2 + i];
    to.extents.push_back(extent);
  }
  if (node.node().has("output_shape")) {
    const std::vector<int64_t> shape = node.integers("output_shape", axes, 0, 1);
    std::copy(shape.begin(), shape.end(), to.extents.begin() + 2);
  }
  return {to};
}

// Along an axis, the unpadded transposed convolution has `full` elements. The first `before` of
// them are not in the output.
struct Reach {
  int64_t full, before;
};

// With auto_pad SAME or output_shape, the surplus is cut off at both ends; otherwise the pads
// specify where.
std::array<Reach, 3> reaches_of(const NodeView& node, const Window& window) {
  const std::string automatic = node.node().text("auto_pad", "NOTSET");
  const size_t axes = node.extents(0).size() - 2;
  std::vector<int64_t> more = node.integers("output_padding", axes, 0, 0, kMaxWindow);
  more.insert(more.begin(), 3 - axes, 0);
  std::array<Reach, 3> reaches;
  for (size_t i = 0; i < reaches.size(); ++i) {
    const AxisWindow& axis = window[i];
    const int64_t full = (axis.from - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
    const int64_t surplus = std::max<int64_t>(0, full + more[i] - axis.to);
    const bool both_ends = automatic.starts_with("SAME") || node.node().has("output_shape");
    reaches[i] = {full, axis.before};
    if (both_ends)
      reaches[i].before = automatic == "SAME_UPPER" ? surplus / 2 : surplus - surplus / 2;
  }
  return reaches;
}

// The native op along one axis: its padding, which is the same at both ends, the extent of its
// output, and how many elements must be cut off before the node's output begins.
struct OpAxis {
  int64_t padding, extent, before;
};

// The native op computes the elements between the paddings, and up to stride - 1 more at the end.
OpAxis op_axis(const Node& node, const Reach& reach, const AxisWindow& window) {
  const auto& [full, before] = reach;
  OpAxis axis{before, 0, 0};
  const int64_t max_extent = full - 2 * before + window.stride - 1;
  if (window.to > max_extent) {  // use less padding, and cut off the additional elements
    axis.before = window.to - max_extent;
    axis.padding -= axis.before;
  }
  if (before < 0 || axis.padding < 0)
    refuse(node,
           "output_padding: the output has {} elements after those that the kernel "
           "reaches; allowed: fewer than the stride of {}",
           window.to + before - full,
           window.stride);
  const int64_t min_extent = std::max<int64_t>(1, full - 2 * axis.padding);
  axis.extent = std::max(min_extent, axis.before + window.to);
  return axis;
}

// Appends the transposed convolution of images over height and width.
TensorId append_images(Lowering& lowering,
                       const Node& node,
                       TensorId x,
                       TensorId weight,
                       TensorId bias,
                       const Window& window,
                       const std::array<Reach, 3>& reaches) {
  graph::GraphBuilder& builder = lowering.builder();
  const OpAxis down = op_axis(node, reaches[1], window[1]),
               across = op_axis(node, reaches[2], window[2]);
  graph::Conv2dAttributes attributes;
  attributes.stride = {window[1].stride, window[2].stride};
  attributes.dilation = {window[1].dilation, window[2].dilation};
  attributes.padding = {down.padding, across.padding};
  attributes.groups = node.integer("group", 1);
  const std::string name = lowering.name_of(node);
  const TensorId y = ops::conv_transpose2d(
      builder, name, x, weight, bias, attributes, {down.extent, across.extent});
  const Shape made = builder.shape(y), wanted = {made[0], window[1].to, window[2].to, made[3]};
  if (made == wanted) return y;
  return ops::slice(
      builder, name + ".cut", y, {0, down.before, across.before, 0}, {1, 1, 1, 1}, wanted);
}

// The last step of a convolution of volumes (col2im along the depth). y (N, D, P, groups, KD, O)
// has, for P pixels, the contribution of each depth of x to the KD depths that its window covers.
// Contributions to the same depth are added: (N, D', P, groups O).
TensorId add_depths(graph::GraphBuilder& builder,
                    const std::string& name,
                    TensorId y,
                    const AxisWindow& depth,
                    const Reach& reach) {
  const Shape s = builder.shape(y);
  const int64_t pixels = s[2], channels = s[3] * s[5], stride = depth.stride;
  const Shape result = {s[0], depth.to, pixels, channels};
  if (depth.kernel == stride && depth.dilation == 1 && depth.to == reach.full)
    return ops::reshape(builder,
                        name + ".depths",
                        ops::transpose(builder, name + ".apart", y, {0, 1, 4, 2, 3, 5}),
                        result);
  TensorId sum = kNoTensor;
  for (int64_t tap = 0; tap < depth.kernel; ++tap) {
    TensorId part = ops::slice(builder,
                               name + ".tap",
                               y,
                               {0, 0, 0, 0, tap, 0},
                               {1, 1, 1, 1, 1, 1},
                               {s[0], s[1], pixels, s[3], 1, s[5]});
    part = ops::reshape(builder, name + ".row", part, {s[0], s[1], 1, pixels * channels});
    part = ops::pad(builder, name + ".apart", part, {0, 0, 0, 0}, {0, 0, stride - 1, 0}, 0);
    part = ops::reshape(builder, name + ".places", part, {s[0], s[1] * stride, pixels, channels});
    const int64_t first = tap * depth.dilation - reach.before;
    part = ops::pad(builder,
                    name + ".placed",
                    part,
                    {0, first, 0, 0},
                    {0, depth.to - first - s[1] * stride, 0, 0},
                    0);
    sum = sum == kNoTensor ? part : ops::add(builder, name + ".sum", sum, part);
  }
  return sum;
}

// A transposed convolution of volumes: first one of images, with the kernel's depths as output
// channels, then add_depths().
TensorId append_volumes(Lowering& lowering,
                        const Node& node,
                        TensorId x,
                        TensorId weight,
                        const Window& window,
                        const std::array<Reach, 3>& reaches) {
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const auto& [depth, height, width] = window;
  const Shape from = builder.shape(x);
  const int64_t samples = from[0], groups = node.integer("group", 1);
  x = ops::reshape(
      builder, name + ".images", x, {samples * depth.from, height.from, width.from, from[4]});
  TensorId y = append_images(lowering, node, x, weight, kNoTensor, window, reaches);
  const int64_t pixels = height.to * width.to, channels = builder.shape(y)[3] / depth.kernel;
  y = ops::reshape(builder,
                   name + ".groups",
                   y,
                   {samples, depth.from, pixels, groups, depth.kernel, channels / groups});
  y = add_depths(builder, name, y, depth, reaches[0]);
  if (bias_of_images(lowering, node) != kNoTensor)
    y = append_function(
        builder, name + ".biased", graph::PointwiseFunction::kAdd, y, input_of(lowering, node, 2));
  return ops::reshape(
      builder, name + ".volume", y, {samples, depth.to, height.to, width.to, channels});
}

void lower_conv_transpose(Lowering& lowering, const Node& node) {
  require_images(lowering, node);
  shape_of(lowering.value(node.output(0)));  // throws if the output is empty
  const TensorId weight = weight_of_images(lowering, node);
  const Extents& kernel = lowering.value(node.input(1)).extents;
  const Window window = window_of(lowering, node, {kernel.begin() + 2, kernel.end()});
  const std::array<Reach, 3> reaches = reaches_of(lowering.readers().view(node), window);
  const TensorId x = images_of(lowering, node.input(0));
  set_images(lowering,
             node,
             kernel.size() == 5
                 ? append_volumes(lowering, node, x, weight, window, reaches)
                 : append_images(
                       lowering, node, x, weight, bias_of_images(lowering, node), window, reaches));
}

constexpr NodeType kNodes[] = {
    {"Conv", rule_conv, lower_conv},
    {"ConvTranspose", rule_conv_transpose, lower_conv_transpose},
};

}  // namespace

std::span<const NodeType> convolution_nodes() { return kNodes; }

}  // namespace lockstep::onnx
