// Transposed convolutions of images.
#include <fmt/format.h>

#include <algorithm>

#include "models/onnx/lowering/image_nodes.h"
#include "models/onnx/lowering/layers.h"
#include "runtime/graph/ops/conv_transpose2d.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::onnx {
namespace {

// One axis: the op's padding, the same on both sides, its output's extent, and how many places of that
// are left out before the node's.
struct Axis {
  int64_t padding, extent, before;
};

// The whole result has `whole` places; the node's begin at place `before` of it, and are `wanted`. The op
// makes those from its padding on, less the padding at the end, and up to stride - 1 more.
Axis axis_of(const Node& node, int64_t whole, int64_t stride, int64_t before, int64_t wanted) {
  Axis axis{before, 0, 0};
  const int64_t most = whole - 2 * before + stride - 1;
  if (wanted > most) {  // with less padding, of which the beginning is cut off
    axis.before = wanted - most;
    axis.padding -= axis.before;
  }
  if (before < 0 || axis.padding < 0)
    refuse(node,
           fmt::format("output_padding: the output has {} places behind those that the kernel "
                       "reaches; allowed: fewer than the stride of {}",
                       wanted + before - whole,
                       stride));
  const int64_t least = std::max<int64_t>(1, whole - 2 * axis.padding);
  axis.extent = std::max(least, axis.before + wanted);
  return axis;
}

}  // namespace

void lower_conv_transpose(Lowering& lowering, const Node& node) {
  require_images(lowering, node);
  shape_of(lowering.value(node.output(0)));  // has an element
  const Extents &from = lowering.value(node.input(0)).extents,
                &to = lowering.value(node.output(0)).extents;
  const TensorId weight = weight_of_images(lowering, node);
  GraphBuilder& builder = lowering.builder();
  const Shape weight_shape = builder.shape(weight);
  Conv2dAttributes attributes;
  attributes.stride = extent2d(node, node.integers("strides", {1, 1}), "strides");
  attributes.dilation = extent2d(node, node.integers("dilations", {1, 1}), "dilations");
  attributes.groups = node.integer("group", 1);
  const std::string automatic = node.text("auto_pad", "NOTSET");
  const std::vector<int64_t> pads = node.integers("pads", {0, 0, 0, 0});
  if (pads.size() != 4) refuse(node, "pads: must be 4 numbers");
  const std::vector<int64_t> more = node.integers("output_padding", {0, 0});
  const int64_t strides[] = {attributes.stride.height, attributes.stride.width},
                dilations[] = {attributes.dilation.height, attributes.dilation.width};
  Axis axes[2];
  for (size_t i = 0; i < 2; ++i) {
    const int64_t reach = (weight_shape[static_cast<int>(i) + 1] - 1) * dilations[i] + 1;
    const int64_t whole = (from[i + 2] - 1) * strides[i] + reach;
    int64_t before = pads[i];
    // What is left over is shared out.
    if (automatic.starts_with("SAME") || node.has("output_shape")) {
      const int64_t over =
          std::max<int64_t>(0, whole + (i < more.size() ? more[i] : 0) - to[i + 2]);
      before = automatic == "SAME_UPPER" ? over / 2 : over - over / 2;
    } else if (automatic == "VALID") {
      before = 0;
    }
    axes[i] = axis_of(node, whole, strides[i], before, to[i + 2]);
  }
  attributes.padding = {axes[0].padding, axes[1].padding};
  const std::string name = lowering.name_of(node);
  TensorId y = ops::conv_transpose2d(builder,
                                     name,
                                     lowering.channels_last(node.input(0)),
                                     weight,
                                     bias_of_images(lowering, node),
                                     attributes,
                                     {axes[0].extent, axes[1].extent});
  const Shape made = builder.shape(y), wanted = {made[0], to[2], to[3], made[3]};
  if (made != wanted)
    y = ops::slice(
        builder, name + ".cut", y, {0, axes[0].before, axes[1].before, 0}, {1, 1, 1, 1}, wanted);
  lowering.set(node.output(0), y, /*channels_last=*/true);
}

}  // namespace lockstep::onnx
