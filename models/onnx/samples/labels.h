#pragma once
// Labels: which sample of the batch each element of a value depends on. Labels that are constant
// along an axis are stored once, so that the labels of a value (N, C, H, W) are usually N numbers.

#include <cstdint>
#include <vector>

#include "models/onnx/read/array.h"

namespace lockstep::onnx {

// The label of one element: kNoSample; the index of a sample, plus kByPosition if the element also
// depends on the sample's position in the batch; or mixed_by(node).
using Label = int32_t;
constexpr Label kNoSample = -1;
constexpr Label kByPosition = Label{1} << 30;

// The element depends on several samples. `node` is the first node that mixed them, an index in
// Network::nodes.
constexpr Label mixed_by(int node) { return -2 - node; }
constexpr bool is_mixed(Label label) { return label < kNoSample; }
constexpr int node_that_mixed(Label label) { return -2 - label; }
constexpr bool is_of_sample(Label label) { return label >= 0; }
constexpr Label sample_of(Label label) { return label & ~kByPosition; }

// The label of an element that node `node` computes from two others.
Label joined(Label a, Label b, int node);

struct Labels {
  Extents extents;            // of the value
  Extents stored;             // for each axis its extent, or 1 if labels are constant along it
  std::vector<Label> labels;  // row-major, of the stored extents
};

// All elements have this label.
Labels uniform(const Extents& extents, Label label);
// The labels of an input of the network: row i is sample i.
Labels by_rows(const Extents& extents);
// Stores axes once along which the labels are constant.
Labels compressed(Labels labels);

// The labels of a value with extents `to` that `node` computes elementwise from two, with
// broadcasting.
Labels joined(const Labels& a, const Labels& b, const Extents& to, int node);
// Along these axes, each element gets the joined labels of all elements.
Labels spread(const Labels& labels, const std::vector<bool>& axes, int node);
// The same elements in the same order, with other extents.
Labels reshaped(const Labels& labels, const Extents& to);
// Axis i is axis order[i] of `labels`.
Labels transposed(const Labels& labels, const std::vector<size_t>& order);
// Element i along the axis is element indices[i] of `labels`; below 0: kNoSample.
Labels picked(const Labels& labels, size_t axis, const std::vector<int64_t>& indices);
// Concatenates along the axis.
Labels concatenated(const std::vector<Labels>& parts, size_t axis, const Extents& to);
// One flag for each axis, which is set for this one.
std::vector<bool> only_axis(size_t rank, size_t axis);
// Inserts an axis with this extent before `axis`; labels are constant along it.
Labels with_axis(Labels labels, size_t axis, int64_t extent);
// Removes axes, along which labels must be constant.
Labels without_axes(const Labels& labels, const std::vector<bool>& axes);

}  // namespace lockstep::onnx
