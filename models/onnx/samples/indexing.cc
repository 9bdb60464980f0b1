// Labels of elements that are found by their place.

#include <algorithm>
#include <map>

#include "models/onnx/samples/node_labels.h"

namespace lockstep::onnx {
namespace {

// The labels of indices. Which element is picked may depend on a sample's place, the element does not.
Labels of_indices(Labels labels) {
  for (Label& label : labels.labels)
    if (is_of_sample(label)) label = sample_of(label);
  return labels;
}

// The places that an index within these bounds may be: all, if they go beyond the axis.
struct Places {
  int64_t first, last;
};
Places places_within(const Bounds& bounds, size_t index, int64_t extent) {
  if (!bounds.known()) return {0, extent - 1};
  double least = bounds.least[index], most = bounds.most[index];
  if (most < 0) {  // counted from the end
    least += static_cast<double>(extent);
    most += static_cast<double>(extent);
  }
  if (least < 0 || most >= static_cast<double>(extent)) return {0, extent - 1};
  return {static_cast<int64_t>(least), static_cast<int64_t>(most)};
}

// What these places of the axis are together.
Labels at_places(const Labels& labels, size_t axis, const Places& places, int node) {
  std::vector<int64_t> range;
  for (int64_t place = places.first; place <= places.last; ++place) range.push_back(place);
  std::vector<bool> axes(labels.extents.size(), false);
  axes[axis] = true;
  return spread(picked(labels, axis, range), axes, node);
}

// Along the axis, at each index what all places are together that it may be.
Labels picked_within(
    const Labels& labels, size_t axis, const Bounds& bounds, int64_t count, int node) {
  if (labels.stored[axis] == 1 || !bounds.known()) {
    std::vector<bool> axes(labels.extents.size(), false);
    axes[axis] = true;
    Labels all = spread(labels, axes, node);
    all.extents[axis] = count;
    return all;
  }
  std::vector<int64_t> only;  // where there is one place for each index
  std::vector<Labels> parts;
  Extents to = labels.extents;
  to[axis] = count;
  for (int64_t i = 0; i < count; ++i) {
    const Places places = places_within(bounds, static_cast<size_t>(i), labels.extents[axis]);
    if (places.first == places.last) only.push_back(places.first);
  }
  if (static_cast<int64_t>(only.size()) == count) return picked(labels, axis, only);
  for (int64_t i = 0; i < count; ++i) {
    parts.push_back(at_places(
        labels, axis, places_within(bounds, static_cast<size_t>(i), labels.extents[axis]), node));
    parts.back().extents[axis] = 1;
  }
  return concatenated(parts, axis, to);
}

// (before, axis, behind) as (before, the indices' axes, behind).
std::vector<Labels> of_gather(const NodeLabels& node) {
  const NodeView& view = node.view();
  const Labels x = node.in(0);
  const size_t axis = view.axis(view.integer("axis", 0), view.rank(0));
  const Extents& indices = view.extents(1);
  const Labels found = picked_within(x, axis, node.bounds(1), elements(indices), node.number());
  Labels index = of_indices(node.in(1));
  for (size_t behind = axis + 1; behind < x.extents.size(); ++behind)
    index = with_axis(index, index.extents.size(), 1);
  return {joined(reshaped(found, node.out()), index, node.out(), node.number())};
}

// As long as the indices; of other axes the first places.
std::vector<Labels> of_gather_elements(const NodeLabels& node) {
  const NodeView& view = node.view();
  const size_t axis = view.axis(view.integer("axis", 0), view.rank(0));
  std::vector<bool> axes(view.extents(0).size(), false);
  axes[axis] = true;
  Labels labels = spread(node.in(0), axes, node.number());
  labels.extents[axis] = node.out()[axis];
  for (size_t other = 0; other < node.out().size(); ++other) {
    std::vector<int64_t> places;
    for (int64_t place = 0; place < node.out()[other] && other != axis; ++place)
      places.push_back(place);
    if (other != axis) labels = picked(labels, other, places);
  }
  return {joined(labels, of_indices(node.in(1)), node.out(), node.number())};
}

// The label of what a row of indices may pick, of the axes before `length`.
Labels at_row(const Labels& x, const Bounds& bounds, size_t row, size_t length, int node) {
  Labels found = x;
  std::vector<bool> axes(x.extents.size(), false);
  for (size_t axis = 0; axis < length; ++axis) {
    axes[axis] = true;
    if (x.stored[axis] == 1) continue;
    found =
        at_places(found, axis, places_within(bounds, row * length + axis, x.extents[axis]), node);
  }
  return without_axes(found, axes);
}

// Rows of indices into the axes behind the batch's, in the last axis of input 1.
std::vector<Labels> of_gather_nd(const NodeLabels& node) {
  const NodeView& view = node.view();
  const auto batch = static_cast<size_t>(view.integer("batch_dims", 0));
  const auto length = static_cast<size_t>(view.extents(1).back());
  const Labels x = node.in(0);
  const size_t rows_rank = view.extents(1).size() - 1, behind = x.extents.size() - batch - length;
  std::vector<bool> indexed(x.extents.size(), false);
  for (size_t axis = batch; axis < batch + length; ++axis) indexed[axis] = true;
  std::vector<bool> last(rows_rank + 1, false);
  last[rows_rank] = true;
  Labels index = without_axes(spread(of_indices(node.in(1)), last, node.number()), last);
  for (size_t axis = 0; axis < behind; ++axis) index = with_axis(index, index.extents.size(), 1);
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

std::vector<Labels> of_one_hot(const NodeLabels& node) {
  const NodeView& view = node.view();
  const int64_t rank = view.rank(0) + 1;
  const size_t axis = view.axis(view.integer("axis", -1), rank);
  return {with_axis(node.in(0), axis, node.out()[axis])};
}

}  // namespace

LabelRule indexing_label_rule(const std::string& op) {
  static const std::map<std::string, LabelRule> kRules = {
      {"Gather", of_gather},
      {"GatherElements", of_gather_elements},
      {"GatherND", of_gather_nd},
      {"OneHot", of_one_hot},
  };
  const auto found = kRules.find(op);
  return found == kRules.end() ? nullptr : found->second;
}

}  // namespace lockstep::onnx
