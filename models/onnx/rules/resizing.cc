// Ops that make images larger and smaller: Resize, Upsample. Rules alone.

#include <cmath>
#include <optional>
#include <string>

#include "models/onnx/rules/table.h"

namespace lockstep::onnx {
namespace {

// The axes that scales and sizes are of.
std::vector<size_t> resized_axes(const NodeView& node) {
  std::vector<int64_t> axes = node.node().integers("axes");
  if (axes.empty())
    for (int64_t axis = 0; axis < node.rank(0); ++axis) axes.push_back(axis);
  return node.axes(axes, node.rank(0));
}

int64_t scaled(const NodeView& node, int64_t extent, double scale) {
  const double result = std::floor(static_cast<double>(extent) * scale);
  if (!(scale > 0) || !(result < static_cast<double>(kLongestExtent)))
    node.refuse("a scale of {}", scale);
  return static_cast<int64_t>(result);
}

Form by_scales(const NodeView& node, const std::vector<double>& scales) {
  const std::vector<size_t> axes = resized_axes(node);
  if (scales.size() != axes.size())
    node.refuse("{} scales of {} axes; must be as many", scales.size(), axes.size());
  Form to = node.form(0);
  for (size_t i = 0; i < axes.size(); ++i)
    to.extents[axes[i]] = scaled(node, to.extents[axes[i]], scales[i]);
  return to;
}

// With a policy the smallest (or greatest) scale of all is that of every axis.
Form by_sizes(const NodeView& node, const std::vector<int64_t>& sizes) {
  const std::vector<size_t> axes = resized_axes(node);
  if (sizes.size() != axes.size())
    node.refuse("{} sizes of {} axes; must be as many", sizes.size(), axes.size());
  const std::string policy = node.node().text("keep_aspect_ratio_policy", "stretch");
  std::optional<double> scale;
  Form to = node.form(0);
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t& extent = to.extents[axes[i]];
    if (extent == 0) node.refuse("axis {} has no elements", axes[i]);
    const double own = static_cast<double>(sizes[i]) / static_cast<double>(extent);
    if (policy == "not_larger") scale = std::fmin(scale.value_or(own), own);
    if (policy == "not_smaller") scale = std::fmax(scale.value_or(own), own);
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

// Whether the input is there and has elements: an absent list is written as an empty one, too.
bool given(const NodeView& node, size_t place) {
  return node.has(place) && elements(node.extents(place)) > 0;
}

// Inputs: scales alone in opset 10; the region, scales and sizes from 11 on.
std::vector<Form> rule_resize(const NodeView& node) {
  node.require_inputs(1, 4);
  if (node.opset() < 11) return {by_scales(node, node.array(1).as_double())};
  if (node.node().text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize")
    node.refuse(
        "attribute coordinate_transformation_mode is tf_crop_and_resize, which is not known");
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
