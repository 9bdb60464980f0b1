#pragma once
// Operands and outputs of nodes that are lowered.

#include "models/onnx/nodes/lowering/lowering.h"

namespace lockstep::onnx {

// An axis below 0 counts from the end.
inline int axis_of(int64_t axis, size_t rank) {
  return static_cast<int>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

// The node's input, in the file's order or channels last.
inline TensorId input_of(Lowering& lowering, const Node& node, size_t index, bool last = false) {
  return lowering.layouts().get(node.input(index), last);
}

// Sets the node's first output.
inline void set_output(Lowering& lowering, const Node& node, TensorId y, bool last = false) {
  lowering.layouts().set(node.output(0), y, last);
}
// The same for elements with other extents than the output's.
void set_reshaped(Lowering& lowering, const Node& node, TensorId y);

// The parameter that a norm may take as its gain or bias, because no other node reads it; below 0:
// none.
int unshared_parameter(Lowering& lowering, int number);

// Throws ConfigError if the node multiplies integers.
void require_floating(const Lowering& lowering, const Node& node);

// The index in (N, ..., C) of an axis of (N, C, ...).
inline int axis_in_last(int axis, size_t rank) {
  return axis == 0 ? 0 : axis == 1 ? static_cast<int>(rank) - 1 : axis - 1;
}

}  // namespace lockstep::onnx
