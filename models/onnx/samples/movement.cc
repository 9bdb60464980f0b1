// Labels for ops that only move elements, or merge and split axes.

#include <algorithm>
#include <map>

#include "models/onnx/nodes/slicing.h"
#include "models/onnx/samples/node_labels.h"

namespace lockstep::onnx {
namespace {

std::vector<Labels> label_same_order(const NodeLabels& node) {
  return {reshaped(node.in(0), node.out())};
}

std::vector<Labels> label_transpose(const NodeLabels& node) {
  const Labels x = node.in(0);
  std::vector<size_t> order;
  for (const int64_t axis : node.node().integers("perm"))
    order.push_back(static_cast<size_t>(axis));
  for (size_t axis = x.extents.size(); order.size() < x.extents.size();) order.push_back(--axis);
  return {transposed(x, order)};
}

std::vector<Labels> label_expand(const NodeLabels& node) {
  return {joined(node.in(0), uniform({}, kNoSample), node.out(), node.number())};
}

std::vector<Labels> label_tile(const NodeLabels& node) {
  Labels labels = node.in(0);
  for (size_t axis = 0; axis < node.out().size(); ++axis) {
    std::vector<int64_t> indices = numbers_from<int64_t>(static_cast<size_t>(node.out()[axis]));
    const int64_t extent = node.view().extents(0)[axis];
    for (int64_t& index : indices) index %= std::max<int64_t>(extent, 1);
    labels = picked(labels, axis, indices);
  }
  return {labels};
}

// Blocks of pixels are exchanged with channels, within each sample.
std::vector<Labels> label_blocks(const NodeLabels& node) {
  Labels labels = spread(node.in(0), {false, true, true, true}, node.number());
  labels.extents = node.out();
  return {labels};
}

std::vector<Labels> label_slice(const NodeLabels& node) {
  Labels labels = node.in(0);
  const std::vector<Cut> cuts = cuts_of(node.view());
  for (size_t axis = 0; axis < cuts.size(); ++axis) {
    std::vector<int64_t> indices = numbers_from<int64_t>(static_cast<size_t>(cuts[axis].count));
    for (int64_t& index : indices) index = cuts[axis].start + index * cuts[axis].step;
    labels = picked(labels, axis, indices);
  }
  return {labels};
}

std::vector<Labels> label_split(const NodeLabels& node) {
  const NodeView& view = node.view();
  const size_t axis = view.axis(view.integer("axis", 0), view.rank(0));
  std::vector<Labels> parts;
  int64_t begin = 0;
  for (const int64_t count : parts_of(view, view.extents(0)[axis])) {
    std::vector<int64_t> indices = numbers_from<int64_t>(static_cast<size_t>(count));
    for (int64_t& index : indices) index += begin;
    parts.push_back(picked(node.in(0), axis, indices));
    begin += count;
  }
  return parts;
}

std::vector<Labels> label_concat(const NodeLabels& node) {
  const NodeView& view = node.view();
  const size_t axis = view.axis(view.integer("axis", 0), view.rank(0));
  std::vector<Labels> parts;
  for (size_t index = 0; index < view.inputs(); ++index) parts.push_back(node.in(index));
  return {concatenated(parts, axis, node.out())};
}

std::vector<Labels> label_pad(const NodeLabels& node) {
  Labels labels = node.in(0);
  const std::vector<int64_t> pads = pads_of(node.view());
  const std::string mode = node.node().text("mode", "constant");
  for (size_t axis = 0; axis < node.out().size(); ++axis) {
    const int64_t extent = labels.extents[axis];
    std::vector<int64_t> indices = numbers_from<int64_t>(static_cast<size_t>(node.out()[axis]));
    for (int64_t& index : indices) index = pad_source(mode, index - pads[axis], extent);
    labels = picked(labels, axis, indices);
  }
  return {labels};
}

// Along a resized axis, each element may depend on all elements.
std::vector<Labels> label_resize(const NodeLabels& node) {
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
      {"Concat", label_concat},
      {"DepthToSpace", label_blocks},
      {"Expand", label_expand},
      {"Flatten", label_same_order},
      {"Identity", label_same_order},
      {"Pad", label_pad},
      {"Reshape", label_same_order},
      {"Resize", label_resize},
      {"Slice", label_slice},
      {"SpaceToDepth", label_blocks},
      {"Split", label_split},
      {"Squeeze", label_same_order},
      {"Tile", label_tile},
      {"Transpose", label_transpose},
      {"Trilu", label_same_order},
      {"Unsqueeze", label_same_order},
      {"Upsample", label_resize},
  };
  const auto found = kRules.find(op);
  return found == kRules.end() ? nullptr : found->second;
}

}  // namespace lockstep::onnx
