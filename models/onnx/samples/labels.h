#pragma once
// Which sample of a batch each element of a value depends on: a label for each element. Labels that are the same all
// along an axis are stored once, so that those of a value (N, C, H, W) are N numbers.

#include <cstdint>
#include <vector>

#include "models/onnx/array.h"

namespace lockstep::onnx {

// kNoSample; a sample's number, with kPlaced added if the element also depends on its place in the batch; or
// mixed_by(node).
using Label = int32_t;
constexpr Label kNoSample = -1;
constexpr Label kPlaced = Label{1} << 30;

// An element depends on several samples since this node, by its place in Network::nodes.
constexpr Label mixed_by(int node) { return -2 - node; }
constexpr bool is_mixed(Label label) { return label < kNoSample; }
constexpr int node_that_mixed(Label label) { return -2 - label; }
constexpr bool is_of_sample(Label label) { return label >= 0; }
constexpr Label sample_of(Label label) { return label & ~kPlaced; }

// The label of an element that this node computes from two.
Label joined(Label a, Label b, int node);

struct Labels {
  Extents extents;            // of the value
  Extents stored;             // each that of the value, or 1
  std::vector<Label> labels;  // row-major, of the stored extents
};

// All elements have this one.
Labels uniform(const Extents& extents, Label label);
// The labels of an input of the network: sample i is row i.
Labels by_rows(const Extents& extents);
// With every axis stored once along which the labels are the same.
Labels compressed(Labels labels);

// Those of a value that `node` computes element by element, broadcast to `to`.
Labels joined(const Labels& a, const Labels& b, const Extents& to, int node);
// Each element of these axes becomes what all of them are together.
Labels spread(const Labels& labels, const std::vector<bool>& axes, int node);
// The same elements in the same order, with other extents.
Labels reshaped(const Labels& labels, const Extents& to);
// Axis i is axis order[i] of `labels`.
Labels transposed(const Labels& labels, const std::vector<size_t>& order);
// Place i of the axis is what was at places[i]; below 0: of no sample.
Labels picked(const Labels& labels, size_t axis, const std::vector<int64_t>& places);
// One after the other along the axis.
Labels concatenated(const std::vector<Labels>& parts, size_t axis, const Extents& to);
// An axis of these extents, all alike, before `axis`.
Labels with_axis(Labels labels, size_t axis, int64_t extent);
// Without axes whose labels are all alike.
Labels without_axes(const Labels& labels, const std::vector<bool>& axes);

}  // namespace lockstep::onnx
