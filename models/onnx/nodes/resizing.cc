// Resizes images and volumes: Resize, Upsample. Which pixels an output reads is computed when the
// graph is built.

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "models/onnx/nodes/image_nodes.h"
#include "models/onnx/nodes/node_type.h"
#include "models/onnx/nodes/operands.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/resize.h"

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

// The modes from the attributes, with the defaults of old opsets.
struct Modes {
  bool linear;
  std::string coordinates, nearest;
};

Modes modes_of(const Node& node) {
  const std::string mode = node.text("mode", "nearest");
  if (mode != "nearest" && mode != "linear" && mode != "bilinear")
    refuse(node, "mode: value is {}; allowed: nearest, linear", mode);
  const bool old = node.op == "Upsample" || node.opset < 11;
  Modes modes{mode != "nearest",
              old ? "asymmetric" : node.text("coordinate_transformation_mode", "half_pixel"),
              old ? "floor" : node.text("nearest_mode", "round_prefer_floor")};
  constexpr const char* kCoordinates[] = {
      "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"};
  constexpr const char* kNearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
  if (std::ranges::count(kCoordinates, modes.coordinates) == 0)
    refuse(node,
           "coordinate_transformation_mode: value is {}; allowed: half_pixel, "
           "half_pixel_symmetric, pytorch_half_pixel, align_corners, asymmetric",
           modes.coordinates);
  if (std::ranges::count(kNearest, modes.nearest) == 0)
    refuse(node,
           "nearest_mode: value is {}; allowed: round_prefer_floor, "
           "round_prefer_ceil, floor, ceil",
           modes.nearest);
  if (node.integer("antialias", 0) != 0) refuse(node, "antialias: value is 1; allowed: 0");
  if (node.text("keep_aspect_ratio_policy", "stretch") != "stretch")
    refuse(node,
           "keep_aspect_ratio_policy: value is {}; allowed: stretch",
           node.text("keep_aspect_ratio_policy", ""));
  return modes;
}

// The scale of each axis; if the node has sizes, the scales follow from them.
std::vector<double> scales_of(Lowering& lowering, const Node& node) {
  const Extents &from = lowering.value(node.input(0)).extents,
                &to = lowering.value(node.output(0)).extents;
  std::vector<double> scales(from.size());
  for (size_t axis = 0; axis < from.size(); ++axis)
    scales[axis] = static_cast<double>(to[axis]) / static_cast<double>(from[axis]);
  std::vector<double> given;
  const int input = node.input(node.op == "Upsample" || node.opset < 11 ? 1 : 2);
  if (node.has("scales")) {
    const std::vector<float> numbers = node.numbers("scales");
    given.assign(numbers.begin(), numbers.end());
  } else if (input >= 0) {
    if (lowering.value(input).kind != ValueKind::kConstant)
      refuse(node, "scales: are computed; must be a constant");
    given = lowering.value(input).array.as_double();
  }
  std::vector<int64_t> axes = numbers_from<int64_t>(given.size());
  if (node.has("axes")) axes = node.integers("axes");
  for (size_t i = 0; i < given.size(); ++i)
    scales[static_cast<size_t>(axis_of(axes[i], from.size()))] = given[i];
  return scales;
}

// The coordinate of output `i` of `to` among the `from` inputs, by ONNX's formulas. scale * from
// may be larger than `to`, because `to` was rounded down.
double coordinate_of(const Modes& modes, int64_t i, int64_t from, int64_t to, double scale) {
  const auto index = static_cast<double>(i), extent = static_cast<double>(from);
  if (modes.coordinates == "asymmetric") return index / scale;
  if (modes.coordinates == "align_corners")
    return to == 1 ? 0 : index * (extent - 1) / (scale * extent - 1);
  if (modes.coordinates == "pytorch_half_pixel" && to == 1) return 0;
  const double half_pixel = (index + 0.5) / scale - 0.5;
  if (modes.coordinates != "half_pixel_symmetric") return half_pixel;
  const double adjustment = static_cast<double>(to) / (scale * extent);
  return extent / 2 * (1 - adjustment) + half_pixel;
}

double nearest(const std::string& mode, double coordinate) {
  if (mode == "floor") return std::floor(coordinate);
  if (mode == "ceil") return std::ceil(coordinate);
  return mode == "round_prefer_ceil" ? std::floor(coordinate + 0.5) : std::ceil(coordinate - 0.5);
}

graph::ResizeAxis resized(const Modes& modes, int64_t from, int64_t to, double scale) {
  const auto last = static_cast<double>(from - 1);
  graph::ResizeAxis axis;
  for (int64_t i = 0; i < to; ++i) {
    const double coordinate = coordinate_of(modes, i, from, to, scale);
    graph::ResizeAxis::Read read;
    if (modes.linear) {
      const double within = std::clamp(coordinate, 0.0, last);
      read.first = static_cast<int64_t>(within);
      read.second = std::min(read.first + 1, from - 1);
      read.weight = static_cast<float>(within - static_cast<double>(read.first));
    } else {
      read.first = read.second =
          static_cast<int64_t>(std::clamp(nearest(modes.nearest, coordinate), 0.0, last));
    }
    axis.reads.push_back(read);
  }
  return axis;
}

// Resizes height and width, then the depth of a volume.
void lower_resize(Lowering& lowering, const Node& node) {
  require_images(lowering, node);
  const Extents &from = lowering.value(node.input(0)).extents,
                &to = lowering.value(node.output(0)).extents;
  if (from[0] != to[0] || from[1] != to[1])
    refuse(node, "scales: those of samples and channels must be 1");
  const Shape result = shape_of(lowering.value(node.output(0)));  // throws if the output is empty
  const Modes modes = modes_of(node);
  const std::vector<double> scales = scales_of(lowering, node);
  const size_t rank = from.size();
  // `from_last` counts axes from the last one. An axis that the images do not have has extent 1.
  const auto along = [&](size_t from_last) {
    return rank < 3 + from_last ? resized(modes, 1, 1, 1)
                                : resized(modes,
                                          from[rank - 1 - from_last],
                                          to[rank - 1 - from_last],
                                          scales[rank - 1 - from_last]);
  };
  graph::GraphBuilder& builder = lowering.builder();
  const std::string name = lowering.name_of(node);
  TensorId x = images_of(lowering, node.input(0));
  if (rank < 5)
    return set_images(lowering, node, ops::resize(builder, name, x, along(1), along(0)));
  x = ops::reshape(builder, name + ".images", x, {from[0] * from[2], from[3], from[4], from[1]});
  x = ops::resize(builder, name + ".across", x, along(1), along(0));
  const int64_t row = to[3] * to[4] * from[1];
  x = ops::reshape(builder, name + ".depths", x, {from[0], from[2], 1, row});
  x = ops::resize(builder, name, x, along(2), resized(modes, 1, 1, 1));
  set_images(
      lowering,
      node,
      ops::reshape(
          builder, name + ".volume", x, {result[0], result[2], result[3], result[4], result[1]}));
}

constexpr NodeType kNodes[] = {
    {"Resize", rule_resize, lower_resize},
    {"Upsample", rule_upsample, lower_resize},
};

}  // namespace

std::span<const NodeType> resizing_nodes() { return kNodes; }

}  // namespace lockstep::onnx
