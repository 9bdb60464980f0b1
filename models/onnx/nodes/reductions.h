#pragma once
// Helpers for ops over the elements of axes.

#include <string>
#include <vector>

#include "models/onnx/nodes/lowering/lowering.h"
#include "models/onnx/nodes/node_view.h"

namespace lockstep::onnx {

// Which axes are reduced. If the node has no axes: all, or none with noop_with_empty_axes.
std::vector<bool> reduced_axes(const NodeView& node);
// The axes over which a softmax normalises: one axis, or before opset 13 all axes from `axis` on.
std::vector<bool> softmax_axes(const NodeView& node);
// The axis of the attribute `axis`.
inline size_t axis_of(const NodeView& node, int64_t otherwise) {
  return node.axis(node.integer("axis", otherwise), node.rank(0));
}

// The input with the reduced axes moved to the end: `count` rows of `length` elements.
struct Rows {
  size_t count = 0;
  size_t length = 0;
  Array array;
};
Rows rows_of(const NodeView& node, const std::vector<bool>& reduced);

// NaN if an element is NaN; -infinity if there are none.
double max_of(const double* row, size_t n);

// Converts i32 to the compute type; other tensors are unchanged.
TensorId as_numbers(graph::GraphBuilder& builder, const std::string& name, TensorId x);
TensorId as_integers(graph::GraphBuilder& builder, const std::string& name, TensorId x);

}  // namespace lockstep::onnx
