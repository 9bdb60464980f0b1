#pragma once
// Axes of nodes, and lists that are attributes in some opsets and inputs in others.

#include <vector>

#include "models/onnx/lowering/lowering.h"

namespace lockstep::onnx {

// An axis below 0 counts from the end.
inline int axis_of(int64_t axis, size_t rank) {
  return static_cast<int>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

// The elements of an input, which must be a constant.
std::vector<int64_t> constant_list(Lowering& lowering, const Node& node, size_t index);
// The elements of the input `index` if it is present, otherwise the attribute.
std::vector<int64_t> list_of(Lowering& lowering,
                             const Node& node,
                             const std::string& attribute,
                             size_t index);

// The index in (N, ..., C) of an axis of (N, C, ...).
inline int axis_in_last(int axis, size_t rank) {
  return axis == 0 ? 0 : axis == 1 ? static_cast<int>(rank) - 1 : axis - 1;
}

}  // namespace lockstep::onnx
