#include "models/onnx/samples/labels.h"

#include <algorithm>
#include <utility>

#include "models/onnx/nodes/strided.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

// Strides that read the stored labels as if they were expanded.
std::vector<int64_t> reading_strides(const Labels& labels) {
  return broadcast_strides(labels.stored, labels.stored);
}

// The stored labels at index * `strides`, for each index below `extents`.
std::vector<Label> read_stored(const Labels& labels,
                               const Extents& extents,
                               const std::vector<int64_t>& strides) {
  std::vector<Label> read;
  read.reserve(static_cast<size_t>(elements(extents)));
  for_each_offset(extents, strides, [&](int64_t offset) {
    read.push_back(labels.labels[static_cast<size_t>(offset)]);
  });
  return read;
}

// Stores the labels in full along these axes.
Labels expanded(const Labels& labels, const std::vector<bool>& axes) {
  Labels made{labels.extents, labels.stored, {}};
  for (size_t axis = 0; axis < axes.size(); ++axis)
    if (axes[axis]) made.stored[axis] = made.extents[axis];
  made.labels = read_stored(labels, made.stored, reading_strides(labels));
  return made;
}

// Whether the labels are constant along the axis.
bool is_constant(const Labels& labels, size_t axis) {
  const int64_t inner =
      elements({labels.stored.begin() + static_cast<int64_t>(axis) + 1, labels.stored.end()});
  const int64_t length = labels.stored[axis], row = length * inner;
  for (int64_t i = 0; i < static_cast<int64_t>(labels.labels.size()); ++i)
    if (labels.labels[static_cast<size_t>(i)] !=
        labels.labels[static_cast<size_t>(i / row * row + i % inner)])
      return false;
  return true;
}

}  // namespace

Label joined(Label a, Label b, int node) {
  if (a == kNoSample || a == b) return b;
  if (b == kNoSample) return a;
  if (is_mixed(a) || is_mixed(b)) {
    if (!is_mixed(a)) return b;
    return is_mixed(b) ? std::max(a, b) : a;  // the larger label is that of the earlier node
  }
  if (sample_of(a) == sample_of(b)) return a | b;
  return mixed_by(node);
}

Labels uniform(const Extents& extents, Label label) {
  return {extents, Extents(extents.size(), 1), {label}};
}

Labels by_rows(const Extents& extents) {
  Labels made = uniform(extents, kNoSample);
  if (extents.empty() || elements(extents) == 0) return made;
  made.stored[0] = extents[0];
  made.labels.resize(static_cast<size_t>(extents[0]));
  for (size_t row = 0; row < made.labels.size(); ++row) made.labels[row] = static_cast<Label>(row);
  return compressed(std::move(made));
}

Labels compressed(Labels labels) {
  for (size_t axis = 0; axis < labels.stored.size(); ++axis) {
    if (labels.stored[axis] == 1 || !is_constant(labels, axis)) continue;
    Extents kept = labels.stored;
    kept[axis] = 1;
    labels.labels = read_stored(labels, kept, strides_of(labels.stored));
    labels.stored = kept;
  }
  return labels;
}

Labels joined(const Labels& a, const Labels& b, const Extents& to, int node) {
  if (elements(to) == 0) return uniform(to, kNoSample);
  Labels made = uniform(to, kNoSample);
  for (const Labels* from : {&a, &b}) {
    LOCKSTEP_CHECK(from->stored.size() <= to.size());
    const size_t shift = to.size() - from->stored.size();
    for (size_t axis = 0; axis < from->stored.size(); ++axis)
      made.stored[shift + axis] = std::max(made.stored[shift + axis], from->stored[axis]);
  }
  made.labels = read_stored(a, made.stored, broadcast_strides(a.stored, made.stored));
  const std::vector<Label> others =
      read_stored(b, made.stored, broadcast_strides(b.stored, made.stored));
  for (size_t i = 0; i < others.size(); ++i)
    made.labels[i] = joined(made.labels[i], others[i], node);
  return compressed(std::move(made));
}

Labels spread(const Labels& labels, const std::vector<bool>& axes, int node) {
  Labels made{labels.extents, labels.stored, {}};
  for (size_t axis = 0; axis < axes.size(); ++axis)
    if (axes[axis]) made.stored[axis] = 1;
  made.labels.assign(static_cast<size_t>(elements(made.stored)), kNoSample);
  size_t next = 0;
  for_each_offset(
      labels.stored, broadcast_strides(made.stored, labels.stored), [&](int64_t offset) {
        Label& label = made.labels[static_cast<size_t>(offset)];
        label = joined(label, labels.labels[next++], node);
      });
  return compressed(std::move(made));
}

// Consecutive axes are grouped until the products of both sides' extents are equal. Only groups
// along which labels differ are stored in full.
Labels reshaped(const Labels& labels, const Extents& to) {
  if (elements(to) == 0) return uniform(to, kNoSample);
  const Extents& from = labels.extents;
  std::vector<bool> full(from.size(), false);
  Extents stored(to.size(), 1);
  size_t i = 0, j = 0;
  while (i < from.size() && j < to.size()) {
    const size_t first = i, first_to = j;
    int64_t before = from[i++], after = to[j++];
    while (before != after) {
      if (before < after)
        before *= from[i++];
      else
        after *= to[j++];
    }
    const bool constant = std::all_of(labels.stored.begin() + static_cast<int64_t>(first),
                                      labels.stored.begin() + static_cast<int64_t>(i),
                                      [](int64_t extent) { return extent == 1; });
    if (constant) continue;
    for (size_t axis = first; axis < i; ++axis) full[axis] = true;
    for (size_t axis = first_to; axis < j; ++axis) stored[axis] = to[axis];
  }
  return compressed({to, stored, expanded(labels, full).labels});
}

Labels transposed(const Labels& labels, const std::vector<size_t>& order) {
  Labels made;
  std::vector<int64_t> strides;
  const std::vector<int64_t> from_strides = reading_strides(labels);
  for (const size_t axis : order) {
    made.extents.push_back(labels.extents[axis]);
    made.stored.push_back(labels.stored[axis]);
    strides.push_back(from_strides[axis]);
  }
  made.labels = read_stored(labels, made.stored, strides);
  return made;
}

Labels picked(const Labels& labels, size_t axis, const std::vector<int64_t>& indices) {
  Labels made = labels;
  made.extents[axis] = static_cast<int64_t>(indices.size());
  if (elements(made.extents) == 0) return uniform(made.extents, kNoSample);
  if (labels.stored[axis] == 1) return made;
  made.stored[axis] = made.extents[axis];
  made.labels.assign(static_cast<size_t>(elements(made.stored)), kNoSample);
  const int64_t inner = strides_of(made.stored)[axis];
  for (int64_t i = 0; i < static_cast<int64_t>(made.labels.size()); ++i) {
    const int64_t index = indices[static_cast<size_t>(i / inner % made.stored[axis])];
    if (index < 0) continue;
    const int64_t row = i / inner / made.stored[axis];
    made.labels[static_cast<size_t>(i)] =
        labels.labels[static_cast<size_t>((row * labels.stored[axis] + index) * inner + i % inner)];
  }
  return compressed(std::move(made));
}

Labels concatenated(const std::vector<Labels>& parts, size_t axis, const Extents& to) {
  if (elements(to) == 0) return uniform(to, kNoSample);
  // An axis along which the labels of any part differ is stored in full.
  std::vector<bool> full = only_axis(to.size(), axis);
  for (const Labels& part : parts)
    for (size_t i = 0; i < to.size(); ++i)
      if (part.stored[i] > 1) full[i] = true;
  Labels made = uniform(to, kNoSample);
  for (size_t i = 0; i < to.size(); ++i)
    if (full[i]) made.stored[i] = to[i];
  std::vector<Labels> expanded_parts;
  for (const Labels& part : parts)
    if (elements(part.extents) > 0) expanded_parts.push_back(expanded(part, full));
  made.labels.clear();
  const int64_t inner = strides_of(made.stored)[axis];
  for (int64_t row = 0; row < elements(made.stored) / (inner * to[axis]); ++row)
    for (const Labels& part : expanded_parts) {
      const int64_t length = part.stored[axis] * inner;
      const auto begin = part.labels.begin() + row * length;
      made.labels.insert(made.labels.end(), begin, begin + length);
    }
  return compressed(std::move(made));
}

std::vector<bool> only_axis(size_t rank, size_t axis) {
  std::vector<bool> axes(rank, false);
  axes[axis] = true;
  return axes;
}

Labels with_axis(Labels labels, size_t axis, int64_t extent) {
  labels.extents.insert(labels.extents.begin() + static_cast<int64_t>(axis), extent);
  labels.stored.insert(labels.stored.begin() + static_cast<int64_t>(axis), 1);
  return labels;
}

Labels without_axes(const Labels& labels, const std::vector<bool>& axes) {
  Labels made{{}, {}, labels.labels};
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    LOCKSTEP_CHECK(!axes[axis] || labels.stored[axis] == 1);
    if (axes[axis]) continue;
    made.extents.push_back(labels.extents[axis]);
    made.stored.push_back(labels.stored[axis]);
  }
  return made;
}

}  // namespace lockstep::onnx
