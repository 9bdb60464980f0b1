// Labels for ops with indices: Gather and its variants, OneHot.

#include <map>

#include "models/onnx/samples/node_labels.h"

namespace lockstep::onnx {
namespace {

// The labels of indices, without kByPosition: an index may depend on the sample's position in the
// batch, but the element that it picks does not.
Labels index_labels(Labels labels) {
  for (Label& label : labels.labels)
    if (is_of_sample(label)) label = sample_of(label);
  return labels;
}

// The range of values that an index within its bounds can have. The complete axis if the bounds
// exceed it.
struct IndexRange {
  int64_t first, last;
};
IndexRange indices_within(const Bounds& bounds, size_t index, int64_t extent) {
  if (!bounds.known()) return {0, extent - 1};
  double min = bounds.min[index], max = bounds.max[index];
  if (max < 0) {  // counted from the end
    min += static_cast<double>(extent);
    max += static_cast<double>(extent);
  }
  if (min < 0 || max >= static_cast<double>(extent)) return {0, extent - 1};
  return {static_cast<int64_t>(min), static_cast<int64_t>(max)};
}

// Joins the labels of this range of the axis.
Labels at_indices(const Labels& labels, size_t axis, const IndexRange& indices, int node) {
  std::vector<int64_t> range;
  for (int64_t i = indices.first; i <= indices.last; ++i) range.push_back(i);
  std::vector<bool> axes(labels.extents.size(), false);
  axes[axis] = true;
  return spread(picked(labels, axis, range), axes, node);
}

// Along the axis, each index gets the joined labels of all elements that it can pick.
Labels picked_within(
    const Labels& labels, size_t axis, const Bounds& bounds, int64_t count, int node) {
  if (labels.stored[axis] == 1 || !bounds.known()) {
    std::vector<bool> axes(labels.extents.size(), false);
    axes[axis] = true;
    Labels all = spread(labels, axes, node);
    all.extents[axis] = count;
    return all;
  }
  std::vector<int64_t> exact;  // the indices that have only one possible value
  std::vector<Labels> parts;
  Extents to = labels.extents;
  to[axis] = count;
  for (int64_t i = 0; i < count; ++i) {
    const IndexRange indices = indices_within(bounds, static_cast<size_t>(i), labels.extents[axis]);
    if (indices.first == indices.last) exact.push_back(indices.first);
  }
  if (static_cast<int64_t>(exact.size()) == count) return picked(labels, axis, exact);
  for (int64_t i = 0; i < count; ++i) {
    parts.push_back(at_indices(
        labels, axis, indices_within(bounds, static_cast<size_t>(i), labels.extents[axis]), node));
    parts.back().extents[axis] = 1;
  }
  return concatenated(parts, axis, to);
}

// Axes (before, axis, after) become (before, axes of the indices, after).
std::vector<Labels> label_gather(const NodeLabels& node) {
  const NodeView& view = node.view();
  const Labels x = node.in(0);
  const size_t axis = view.axis(view.integer("axis", 0), view.rank(0));
  const Extents& indices = view.extents(1);
  const Labels found = picked_within(x, axis, node.bounds(1), elements(indices), node.number());
  Labels index = index_labels(node.in(1));
  for (size_t after = axis + 1; after < x.extents.size(); ++after)
    index = with_axis(index, index.extents.size(), 1);
  return {joined(reshaped(found, node.out()), index, node.out(), node.number())};
}

// Along the axis, as long as the indices; along other axes, x is cut to their extents.
std::vector<Labels> label_gather_elements(const NodeLabels& node) {
  const NodeView& view = node.view();
  const size_t axis = view.axis(view.integer("axis", 0), view.rank(0));
  std::vector<bool> axes(view.extents(0).size(), false);
  axes[axis] = true;
  Labels labels = spread(node.in(0), axes, node.number());
  labels.extents[axis] = node.out()[axis];
  for (size_t other = 0; other < node.out().size(); ++other) {
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < node.out()[other] && other != axis; ++i) indices.push_back(i);
    if (other != axis) labels = picked(labels, other, indices);
  }
  return {joined(labels, index_labels(node.in(1)), node.out(), node.number())};
}

// The joined labels of what a row of `length` indices, into the first axes, can pick.
Labels at_row(const Labels& x, const Bounds& bounds, size_t row, size_t length, int node) {
  Labels found = x;
  std::vector<bool> axes(x.extents.size(), false);
  for (size_t axis = 0; axis < length; ++axis) {
    axes[axis] = true;
    if (x.stored[axis] == 1) continue;
    found =
        at_indices(found, axis, indices_within(bounds, row * length + axis, x.extents[axis]), node);
  }
  return without_axes(found, axes);
}

// The last axis of input 1 has rows of indices into the axes after the batch's.
std::vector<Labels> label_gather_nd(const NodeLabels& node) {
  const NodeView& view = node.view();
  const auto batch = static_cast<size_t>(view.integer("batch_dims", 0));
  const auto length = static_cast<size_t>(view.extents(1).back());
  const Labels x = node.in(0);
  const size_t rows_rank = view.extents(1).size() - 1;
  const size_t inner_rank = x.extents.size() - batch - length;
  std::vector<bool> indexed(x.extents.size(), false);
  for (size_t axis = batch; axis < batch + length; ++axis) indexed[axis] = true;
  std::vector<bool> last(rows_rank + 1, false);
  last[rows_rank] = true;
  Labels index = without_axes(spread(index_labels(node.in(1)), last, node.number()), last);
  for (size_t axis = 0; axis < inner_rank; ++axis)
    index = with_axis(index, index.extents.size(), 1);
  const Bounds bounds = node.bounds(1);
  bool varies = false;
  for (size_t axis = 0; axis < length; ++axis) varies |= batch == 0 && x.stored[axis] > 1;
  Labels found;
  if (varies && bounds.known()) {
    const Extents rows(node.out().begin(), node.out().begin() + static_cast<int64_t>(rows_rank));
    std::vector<Labels> parts;
    for (int64_t row = 0; row < elements(rows); ++row)
      parts.push_back(
          with_axis(at_row(x, bounds, static_cast<size_t>(row), length, node.number()), 0, 1));
    if (parts.empty()) return {uniform(node.out(), kNoSample)};
    Extents to = parts[0].extents;
    to[0] = elements(rows);
    found = reshaped(concatenated(parts, 0, to), node.out());
  } else {
    found = without_axes(spread(x, indexed, node.number()), indexed);
    for (size_t axis = batch; axis < rows_rank; ++axis) found = with_axis(found, batch, 1);
  }
  return {joined(found, index, node.out(), node.number())};
}

std::vector<Labels> label_one_hot(const NodeLabels& node) {
  const NodeView& view = node.view();
  const int64_t rank = view.rank(0) + 1;
  const size_t axis = view.axis(view.integer("axis", -1), rank);
  return {with_axis(node.in(0), axis, node.out()[axis])};
}

}  // namespace

LabelRule indexing_label_rule(const std::string& op) {
  static const std::map<std::string, LabelRule> kRules = {
      {"Gather", label_gather},
      {"GatherElements", label_gather_elements},
      {"GatherND", label_gather_nd},
      {"OneHot", label_one_hot},
  };
  const auto found = kRules.find(op);
  return found == kRules.end() ? nullptr : found->second;
}

}  // namespace lockstep::onnx
