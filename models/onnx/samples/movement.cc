// Labels of what only moves elements along axes, or makes one axis of several.

#include <algorithm>
#include <map>
#include <numeric>

#include "models/onnx/rules/slicing.h"
#include "models/onnx/samples/node_labels.h"

namespace lockstep::onnx {
namespace {

std::vector<int64_t> counted(int64_t count) {
  std::vector<int64_t> places(static_cast<size_t>(count));
  std::iota(places.begin(), places.end(), 0);
  return places;
}

std::vector<Labels> of_same_order(const NodeLabels& node) {
  return {reshaped(node.in(0), node.out())};
}

std::vector<Labels> of_transpose(const NodeLabels& node) {
  const Labels x = node.in(0);
  std::vector<size_t> order;
  for (const int64_t axis : node.node().integers("perm"))
    order.push_back(static_cast<size_t>(axis));
  for (size_t axis = x.extents.size(); order.size() < x.extents.size();) order.push_back(--axis);
  return {transposed(x, order)};
}

std::vector<Labels> of_expand(const NodeLabels& node) {
  return {joined(node.in(0), uniform({}, kNoSample), node.out(), node.number())};
}

std::vector<Labels> of_tile(const NodeLabels& node) {
  Labels labels = node.in(0);
  for (size_t axis = 0; axis < node.out().size(); ++axis) {
    std::vector<int64_t> places = counted(node.out()[axis]);
    const int64_t extent = node.view().extents(0)[axis];
    for (int64_t& place : places) place %= std::max<int64_t>(extent, 1);
    labels = picked(labels, axis, places);
  }
  return {labels};
}

// A sample's blocks of pixels and its channels change places.
std::vector<Labels> of_blocks(const NodeLabels& node) {
  Labels labels = spread(node.in(0), {false, true, true, true}, node.number());
  labels.extents = node.out();
  return {labels};
}

std::vector<Labels> of_slice(const NodeLabels& node) {
  Labels labels = node.in(0);
  const std::vector<Cut> cuts = cuts_of(node.view());
  for (size_t axis = 0; axis < cuts.size(); ++axis) {
    std::vector<int64_t> places = counted(cuts[axis].count);
    for (int64_t& place : places) place = cuts[axis].start + place * cuts[axis].step;
    labels = picked(labels, axis, places);
  }
  return {labels};
}

std::vector<Labels> of_split(const NodeLabels& node) {
  const NodeView& view = node.view();
  const size_t axis = view.axis(view.integer("axis", 0), view.rank(0));
  std::vector<Labels> parts;
  int64_t begin = 0;
  for (const int64_t count : parts_of(view, view.extents(0)[axis])) {
    std::vector<int64_t> places = counted(count);
    for (int64_t& place : places) place += begin;
    parts.push_back(picked(node.in(0), axis, places));
    begin += count;
  }
  return parts;
}

std::vector<Labels> of_concat(const NodeLabels& node) {
  const NodeView& view = node.view();
  const size_t axis = view.axis(view.integer("axis", 0), view.rank(0));
  std::vector<Labels> parts;
  for (size_t place = 0; place < view.inputs(); ++place) parts.push_back(node.in(place));
  return {concatenated(parts, axis, node.out())};
}

std::vector<Labels> of_pad(const NodeLabels& node) {
  Labels labels = node.in(0);
  const std::vector<int64_t> pads = pads_of(node.view());
  const std::string mode = node.node().text("mode", "constant");
  for (size_t axis = 0; axis < node.out().size(); ++axis) {
    const int64_t extent = labels.extents[axis];
    std::vector<int64_t> places = counted(node.out()[axis]);
    for (int64_t& place : places) place = pad_source(mode, place - pads[axis], extent);
    labels = picked(labels, axis, places);
  }
  return {labels};
}

// Axes that are made longer or shorter are computed from all of their elements.
std::vector<Labels> of_resize(const NodeLabels& node) {
  std::vector<bool> axes;
  for (size_t axis = 0; axis < node.out().size(); ++axis)
    axes.push_back(node.out()[axis] != node.view().extents(0)[axis]);
  Labels labels = spread(node.in(0), axes, node.number());
  labels.extents = node.out();
  return {labels};
}

}  // namespace

LabelRule movement_label_rule(const std::string& op) {
  static const std::map<std::string, LabelRule> kRules = {
      {"Concat", of_concat},
      {"DepthToSpace", of_blocks},
      {"Expand", of_expand},
      {"Flatten", of_same_order},
      {"Identity", of_same_order},
      {"Pad", of_pad},
      {"Reshape", of_same_order},
      {"Resize", of_resize},
      {"Slice", of_slice},
      {"SpaceToDepth", of_blocks},
      {"Split", of_split},
      {"Squeeze", of_same_order},
      {"Tile", of_tile},
      {"Transpose", of_transpose},
      {"Trilu", of_same_order},
      {"Unsqueeze", of_same_order},
      {"Upsample", of_resize},
  };
  const auto found = kRules.find(op);
  return found == kRules.end() ? nullptr : found->second;
}

}  // namespace lockstep::onnx
