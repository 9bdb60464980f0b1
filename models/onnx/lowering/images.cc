// Convolutions, batch norms and pooling.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "models/onnx/constants.h"
#include "models/onnx/lowering/image_nodes.h"
#include "models/onnx/lowering/layers.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/conv2d.h"
#include "runtime/graph/ops/pooling.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/reduce.h"

namespace lockstep::onnx {
namespace {

constexpr int64_t kMaxPixels = 256;  // of a max pool's window, whose argmax is stored in a byte

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
  GraphBuilder& builder = lowering.builder();
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

PoolAttributes pool_of(const Node& node, const AxisWindow& down, const AxisWindow& across) {
  for (const AxisWindow& axis : {down, across})
    if (!windows_see_pixels(
            axis.from, axis.to, axis.kernel, axis.stride, axis.dilation, axis.before))
      refuse(node, "pads or ceil_mode: a window would cover only padding");
  PoolAttributes attributes;
  attributes.kernel = {down.kernel, across.kernel};
  attributes.stride = {down.stride, across.stride};
  attributes.dilation = {down.dilation, across.dilation};
  attributes.padding = {down.before, across.before};
  attributes.behind = {down.after, across.after};
  // With ceil_mode, windows may extend beyond the padding.
  attributes.outputs = {down.to, across.to};
  attributes.count_include_pad = node.integer("count_include_pad", 0) != 0;
  if (node.op != "MaxPool" && attributes.dilation != Extent2d{})
    refuse(node, "dilations: must be 1; average pooling with others is not supported");
  if (const int64_t pixels = down.kernel * across.kernel;
      node.op == "MaxPool" && pixels > kMaxPixels)
    refuse(node,
           fmt::format("kernel_shape: has {} pixels; allowed: at most {}, or the complete image",
                       pixels,
                       kMaxPixels));
  return attributes;
}

TensorId append_pool(Lowering& lowering,
                     const Node& node,
                     TensorId x,
                     const AxisWindow& down,
                     const AxisWindow& across) {
  const auto pool = node.op == "MaxPool" ? ops::max_pool : ops::avg_pool;
  if (node.op == "MaxPool" && down.kernel * across.kernel > kMaxPixels && down.covers_axis() &&
      across.covers_axis()) {
    return ops::reduce(
        lowering.builder(), lowering.name_of(node), x, ReduceKind::kMax, {1, 2}, /*keep=*/true);
  }
  return pool(lowering.builder(), lowering.name_of(node), x, pool_of(node, down, across));
}

// Pools height and width first, then the depth. For maxima that equals pooling the volume. So it
// does for means, because the share of a window's depths in the padding is the same for all its
// pixels.
TensorId append_pool_of_volumes(Lowering& lowering,
                                const Node& node,
                                TensorId x,
                                const Window& window) {
  GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  const auto& [depth, height, width] = window;
  const Shape shape = builder.shape(x);
  if (!height.changes_nothing() || !width.changes_nothing()) {
    x = ops::reshape(
        builder, name + ".images", x, {shape[0] * depth.from, height.from, width.from, shape[4]});
    x = append_pool(lowering, node, x, height, width);
  }
  if (!depth.changes_nothing()) {
    const int64_t pixels = height.to * width.to;
    x = ops::reshape(builder, name + ".depths", x, {shape[0], depth.from, pixels, shape[4]});
    x = append_pool(lowering, node, x, depth, {.from = pixels, .to = pixels});
  }
  return ops::reshape(
      builder, name + ".volume", x, {shape[0], depth.to, height.to, width.to, shape[4]});
}

}  // namespace

void lower_conv(Lowering& lowering, const Node& node) {
  require_images(lowering, node);
  const TensorId weight = weight_of_images(lowering, node);
  const Extents& kernel = lowering.value(node.input(1)).extents;
  Window window = window_of(lowering, node, {kernel.begin() + 2, kernel.end()});
  Conv2dAttributes attributes;
  attributes.groups = node.integer("group", 1);
  TensorId x = pad_images(lowering, node, images_of(lowering, node.input(0)), window);
  const bool volumes = kernel.size() == 5;
  if (volumes) x = depths_beside_channels(lowering, node, x, window[0], attributes.groups);
  attributes.stride = {window[1].stride, window[2].stride};
  attributes.padding = {window[1].before, window[2].before};
  attributes.dilation = {window[1].dilation, window[2].dilation};
  GraphBuilder& builder = lowering.builder();
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

namespace {

// A vector with a number for each channel: a parameter if this norm is its only reader, else any
// tensor.
TensorId norm_vector(Lowering& lowering, int number) {
  const Lowering::Source source = lowering.source_of(number);
  const bool unshared = source.value >= 0 && lowering.can_have(source.value, Storage::kAsInFile) &&
                        lowering.only_reader(source.value) != nullptr;
  return unshared ? lowering.unshared_parameter(source.value) : lowering.plain(number);
}

}  // namespace

// Fuses a ReLU that is the only reader.
void lower_batch_normalization(Lowering& lowering, const Node& node) {
  const float momentum = 1 - node.number("momentum", 0.9f);
  if (!(momentum > 0 && momentum <= 1))
    refuse(
        node,
        fmt::format("momentum: value is {}; allowed: from 0 to below 1 (PyTorch's momentum is 1 - "
                    "this, and 0 would leave the running statistics as they are)",
                    1 - momentum));
  ops::BatchNormParameters parameters;
  parameters.gamma = norm_vector(lowering, node.input(1));
  parameters.beta = norm_vector(lowering, node.input(2));
  parameters.running_mean =
      lowering.running_statistic(node, lowering.origin_of(node.input(3)), momentum);
  parameters.running_variance =
      lowering.running_statistic(node, lowering.origin_of(node.input(4)), momentum);
  BatchNormAttributes attributes;
  attributes.epsilon = node.number("epsilon", 1e-5f);
  attributes.synchronised = lowering.synchronised_norms();
  int output = node.output(0);
  const Node* reader = lowering.only_reader(output);
  if (is_op(reader, "Relu")) {
    attributes.activation = Activation::kRelu;
    lowering.mark_fused(*reader);
    output = reader->output(0);
  }
  const bool images = lowering.value(node.input(0)).extents.size() > 2;
  const TensorId x = images ? lowering.channels_last(node.input(0)) : lowering.plain(node.input(0));
  const TensorId y = ops::batch_norm(
      lowering.builder(), lowering.name_of(node), x, kNoTensor, parameters, attributes);
  lowering.set(output, y, images);
}

// Max and average pooling.
void lower_pool(Lowering& lowering, const Node& node) {
  require_images(lowering, node);
  const Window window = window_of(lowering, node, node.integers("kernel_shape"));
  const TensorId x = images_of(lowering, node.input(0));
  set_images(lowering,
             node,
             lowering.value(node.input(0)).extents.size() == 5
                 ? append_pool_of_volumes(lowering, node, x, window)
                 : append_pool(lowering, node, x, window[1], window[2]));
}

}  // namespace lockstep::onnx
