// Resizes images and volumes. Which pixels an output reads is computed when the graph is built.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/onnx/lowering/axes.h"
#include "models/onnx/lowering/image_nodes.h"
#include "models/onnx/lowering/layers.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/resize.h"

namespace lockstep::onnx {
namespace {

// The modes from the attributes, with the defaults of old opsets.
struct Modes {
  bool linear;
  std::string coordinates, nearest;
};

Modes modes_of(const Node& node) {
  const std::string mode = node.text("mode", "nearest");
  if (mode != "nearest" && mode != "linear" && mode != "bilinear")
    refuse(node, fmt::format("mode: value is {}; allowed: nearest, linear", mode));
  const bool old = node.op == "Upsample" || node.opset < 11;
  Modes modes{mode != "nearest",
              old ? "asymmetric" : node.text("coordinate_transformation_mode", "half_pixel"),
              old ? "floor" : node.text("nearest_mode", "round_prefer_floor")};
  constexpr const char* kCoordinates[] = {
      "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"};
  constexpr const char* kNearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
  if (std::ranges::count(kCoordinates, modes.coordinates) == 0)
    refuse(node,
           fmt::format("coordinate_transformation_mode: value is {}; allowed: half_pixel, "
                       "half_pixel_symmetric, pytorch_half_pixel, align_corners, asymmetric",
                       modes.coordinates));
  if (std::ranges::count(kNearest, modes.nearest) == 0)
    refuse(node,
           fmt::format("nearest_mode: value is {}; allowed: round_prefer_floor, "
                       "round_prefer_ceil, floor, ceil",
                       modes.nearest));
  if (node.integer("antialias", 0) != 0) refuse(node, "antialias: value is 1; allowed: 0");
  if (node.text("keep_aspect_ratio_policy", "stretch") != "stretch")
    refuse(node,
           fmt::format("keep_aspect_ratio_policy: value is {}; allowed: stretch",
                       node.text("keep_aspect_ratio_policy", "")));
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
  std::vector<int64_t> axes(given.size());
  std::iota(axes.begin(), axes.end(), 0);
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

ResizeAxis resized(const Modes& modes, int64_t from, int64_t to, double scale) {
  const auto last = static_cast<double>(from - 1);
  ResizeAxis axis;
  for (int64_t i = 0; i < to; ++i) {
    const double coordinate = coordinate_of(modes, i, from, to, scale);
    ResizeAxis::Read read;
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

}  // namespace

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
  GraphBuilder& builder = lowering.builder();
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

}  // namespace lockstep::onnx
