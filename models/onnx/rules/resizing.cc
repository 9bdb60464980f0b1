// Ops that resize images: Resize, Upsample. Rules only, no evaluators.

#include <cmath>
#include <optional>
#include <string>

#include "models/onnx/rules/table.h"

namespace lockstep::onnx {
namespace {

// The axes of the scales or sizes.
std::vector<size_t> resized_axes(const NodeView& node) {
  std::vector<int64_t> axes = node.node().integers("axes");
  if (axes.empty())
    for (int64_t axis = 0; axis < node.rank(0); ++axis) axes.push_back(axis);
  return node.axes(axes, node.rank(0));
}

int64_t scaled(const NodeView& node, int64_t extent, double scale) {
  const double result = std::floor(static_cast<double>(extent) * scale);
  if (!(scale > 0) || !(result < static_cast<double>(kMaxExtent)))
    node.refuse("a scale is {}, which is out of range", scale);
  return static_cast<int64_t>(result);
}

Form by_scales(const NodeView& node, const std::vector<double>& scales) {
  const std::vector<size_t> axes = resized_axes(node);
  if (scales.size() != axes.size())
    node.refuse("has {} scales for {} axes; must have one for each", scales.size(), axes.size());
  Form to = node.form(0);
  for (size_t i = 0; i < axes.size(); ++i)
    to.extents[axes[i]] = scaled(node, to.extents[axes[i]], scales[i]);
  return to;
}

// With an aspect ratio policy, all axes get the smallest (not_larger) or largest (not_smaller)
// scale.
Form by_sizes(const NodeView& node, const std::vector<int64_t>& sizes) {
  const std::vector<size_t> axes = resized_axes(node);
  if (sizes.size() != axes.size())
    node.refuse("has {} sizes for {} axes; must have one for each", sizes.size(), axes.size());
  const std::string policy = node.node().text("keep_aspect_ratio_policy", "stretch");
  std::optional<double> scale;
  Form to = node.form(0);
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t& extent = to.extents[axes[i]];
    if (extent == 0) node.refuse("axis {} has no elements", axes[i]);
    const double ratio = static_cast<double>(sizes[i]) / static_cast<double>(extent);
    if (policy == "not_larger") scale = std::fmin(scale.value_or(ratio), ratio);
    if (policy == "not_smaller") scale = std::fmax(scale.value_or(ratio), ratio);
    if (!scale) extent = sizes[i];
  }
  if (!scale && policy != "stretch")
    node.refuse(
        "attribute keep_aspect_ratio_policy is {}; must be stretch, not_larger or not_smaller",
        policy);
  if (scale)
    for (const size_t axis : axes)
      to.extents[axis] =
          scaled(node, 1, std::floor(static_cast<double>(to.extents[axis]) * *scale + 0.5));
  return to;
}

// Whether the input is present and not empty: exporters also write an absent list as an empty one.
bool given(const NodeView& node, size_t index) {
  return node.has(index) && elements(node.extents(index)) > 0;
}

// Inputs: the image and scales in opset 10; the image, region, scales and sizes from opset 11 on.
std::vector<Form> rule_resize(const NodeView& node) {
  node.require_inputs(1, 4);
  if (node.opset() < 11) return {by_scales(node, node.array(1).as_double())};
  if (node.node().text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize")
    node.refuse(
        "attribute coordinate_transformation_mode is tf_crop_and_resize, which is not supported");
  if (given(node, 2) == given(node, 3)) node.refuse("must have either scales or sizes");
  if (given(node, 2)) return {by_scales(node, node.array(2).as_double())};
  return {by_sizes(node, node.known_integers(3))};
}

std::vector<Form> rule_upsample(const NodeView& node) {
  if (!node.node().has("scales")) return {by_scales(node, node.array(1).as_double())};
  const std::vector<float> scales = node.node().numbers("scales");
  return {by_scales(node, {scales.begin(), scales.end()})};
}

constexpr Op kOps[] = {
    {"Resize", rule_resize},
    {"Upsample", rule_upsample},
};

}  // namespace

std::span<const Op> resizing_ops() { return kOps; }

}  // namespace lockstep::onnx
